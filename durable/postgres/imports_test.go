package postgres_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An engine knows package driver, and not the users' package: so that can change without engines.
func TestImportsNoUsersPackage(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range file.Imports {
			require.NotEqual(t, `"github.com/tickwheel/tickwheel/durable"`, spec.Path.Value, name)
		}
	}
}
