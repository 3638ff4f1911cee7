package jetstream_test

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	core   = "github.com/tickwheel/tickwheel/"
	module = core + "durable"
)

// An engine knows package driver, and not the users' package: so that can change without engines.
// These are the packages of this project that a package of this module may import.
var mayImport = map[string][]string{
	".": {
		module + "/driver", module + "/internal/clock", module + "/internal/held", core + "internal/stack",
		module + "/internal/unread", module + "/jetstream/internal/options",
		module + "/jetstream/internal/stream",
	},
	"embedded":                  {module + "/driver", module + "/jetstream", module + "/jetstream/internal/options"},
	"internal/natsserver":       {},
	"internal/natsserver/serve": {},
	"internal/options":          {},
	"internal/stream":           {module + "/driver", module + "/internal/clock", core + "internal/stack"},
}

// No file, tests included, imports what PostgreSQL needs: it would be in the module graph of each user.
var postgres = []string{module + "/postgres", "github.com/jackc", "github.com/lib/pq"}

func TestImportsPointOneWay(t *testing.T) {
	seen := map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(name string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") {
			return err
		}
		name = filepath.ToSlash(name)
		allowed, named := mayImport[path.Dir(name)]
		require.True(t, named, "of %s this test knows nothing", path.Dir(name))
		seen[path.Dir(name)] = true
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			for _, other := range postgres {
				require.False(t, imported == other || strings.HasPrefix(imported, other+"/"), "%s imports %s", name, imported)
			}
			if strings.HasPrefix(imported, core) && !strings.HasSuffix(name, "_test.go") {
				require.Contains(t, allowed, imported, name)
			}
		}
		return nil
	}))
	for dir := range mayImport {
		require.True(t, seen[dir], "%s is gone, and with it what this test checks", dir)
	}
}
