package durable_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// go doc shows no field of an alias: its comment names them.
func TestCommentsOfAliasesNameTheirFields(t *testing.T) {
	source, err := os.ReadFile("driver.go")
	require.NoError(t, err)
	for _, v := range []any{
		durable.Job{}, durable.Attempt{}, durable.Info{}, durable.Failure{}, durable.Filter{}, durable.Limit{}, durable.Pausable{}, durable.Pause{},
		durable.Backlog{}, durable.Overdue{}, durable.Unhandled{},
	} {
		typ := reflect.TypeOf(v)
		before, _, found := strings.Cut(string(source), "\ntype "+typ.Name()+" = ")
		require.True(t, found, typ.Name())
		comment := before[strings.LastIndex(before, "\n\n"):]
		for _, f := range reflect.VisibleFields(typ) {
			if f.IsExported() {
				require.Regexp(t, `\b`+f.Name+`\b`, comment, "the comment of %s", typ.Name())
			}
		}
	}
}
