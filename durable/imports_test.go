package durable_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	core   = "github.com/tickwheel/tickwheel/"
	module = core + "durable"
)

// Imports point one way: tools and tests -> durable -> internal/worker -> internal/recur -> driver, and
// engines -> driver. These are the packages of this project that a package of this module may import.
// One that is not named here is a tool.
var mayImport = map[string][]string{
	".": {
		module + "/driver", module + "/internal/batch", module + "/internal/clock", module + "/internal/once",
		module + "/internal/recur", module + "/internal/valid", module + "/internal/worker",
		module + "/internal/worker/attempt", module + "/cron", core + "timingwheel",
		core + "internal/wallclock",
	},
	"internal/worker": {
		module + "/driver", module + "/internal/batch", module + "/internal/clock", module + "/internal/recur",
		module + "/internal/worker/attempt", module + "/internal/worker/dispatch", core + "timingwheel",
	},
	"internal/worker/attempt":  {module + "/driver", module + "/internal/clock", module + "/internal/recur", module + "/internal/valid"},
	"internal/worker/dispatch": {module + "/driver", module + "/internal/batch"},
	"internal/recur":           {module + "/driver", module + "/internal/clock", module + "/internal/unread", module + "/cron"},
	"driver":                   {module + "/internal/clock", module + "/internal/unread", module + "/internal/valid"},
	"cron":                     {core + "timingwheel"},
	"internal/batch":           {module + "/internal/stack"},
	"internal/busy":            {},
	"internal/clock":           {},
	"internal/once":            {},
	"internal/stack":           {},
	"internal/unread":          {},
	"internal/valid":           {},
	"memory":                   {module + "/driver", module + "/internal/once"},
	"jetstream": {
		module + "/driver", module + "/internal/clock", module + "/internal/once", module + "/internal/stack",
		module + "/internal/unread", module + "/jetstream/internal/options", core + "timingwheel",
	},
	"jetstream/embedded":         {module + "/driver", module + "/jetstream", module + "/jetstream/internal/options"},
	"jetstream/internal/options": {},
	"enginetest":                 {module, module + "/driver", module + "/internal/busy", module + "/memory"},
	"crashtest":                  {module, module + "/driver", module + "/memory"},
	"admin":                      {module, core + "timingwheel"},
}

func TestImportsPointOneWay(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); path != "." && err == nil {
				return filepath.SkipDir
			}
			return nil
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		allowed, named := mayImport[dir]
		if !named || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		seen[dir] = true
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			if strings.HasPrefix(imported, core) && !slices.Contains(allowed, imported) {
				t.Errorf("%s imports %s", path, imported)
			}
		}
		return nil
	})
	require.NoError(t, err)
	for dir := range mayImport {
		require.True(t, seen[dir], "%s is gone, and with it what this test checks", dir)
	}
}
