package postgres_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// No file, tests included, imports what JetStream needs: it would be in the module graph of each user.
var jetstream = []string{`"github.com/tickwheel/tickwheel/durable/jetstream`, `"github.com/nats-io/`}

// An engine knows package driver, and not the users' package: so that can change without engines.
func TestImportsPointOneWay(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range file.Imports {
			for _, other := range jetstream {
				require.False(t, strings.HasPrefix(spec.Path.Value, other), "%s imports %s", name, spec.Path.Value)
			}
			if !strings.HasSuffix(name, "_test.go") {
				require.NotEqual(t, `"github.com/tickwheel/tickwheel/durable"`, spec.Path.Value, name)
			}
		}
	}
}
