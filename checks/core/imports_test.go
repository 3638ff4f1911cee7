// Package core has the tests of the core module as a whole.
package core

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	root    = "../.."
	module  = "github.com/tickwheel/tickwheel/"
	surface = module + "timingwheel"
	inside  = surface + "/internal/"
)

// Imports point one way: examples, benchmarks, durable -> purgatory -> timingwheel ->
// timingwheel/internal/engine -> {timingwheel/internal/run, bucket, delayqueue}, delayqueue ->
// internal/heap -> gods. Package timingwheel/pool is beside the surface, and so is
// timingwheel/park, by which purgatory reaches the engine; dropin/time and dropin/context are
// above it. Packages purgatory, timingwheel and bucket use internal/shrinking too, and
// internal/parking, which imports nothing, is what purgatory and the engine share. Package
// timingwheel and the engine use internal/wallclock, and the engine, delayqueue and internal/wallclock use internal/bubble. The engine uses internal/stack, as module durable does. Types
// that must not be copied have a field of internal/nocopy. Every package that is not named here uses the
// library (the examples; timingwheel/debug, a module of its own). Such a package may import purgatory, timingwheel
// and timingwheel/pool; an example may import dropin, too.
var mayImport = map[string][]string{
	"purgatory":     {surface, surface + "/park", module + "internal/shrinking", module + "internal/parking"},
	"timingwheel":   {inside + "engine", inside + "run", inside + "pprof", module + "internal/shrinking", module + "internal/wallclock", module + "internal/nocopy"},
	"delayqueue":    {module + "internal/heap", module + "internal/bubble"},
	"bucket":        {module + "internal/shrinking", module + "internal/nocopy"},
	"internal/heap": {"github.com/emirpasic/gods"},

	"dropin/time":    {surface},
	"dropin/context": {surface},

	"timingwheel/park":            {surface, inside + "engine", module + "internal/parking"},
	"timingwheel/pool":            {surface, inside + "engine", inside + "run", module + "internal/nocopy"},
	"timingwheel/internal/engine": {inside + "run", module + "bucket", module + "delayqueue", module + "internal/parking", module + "internal/wallclock", module + "internal/bubble", module + "internal/stack"},
	"timingwheel/internal/pprof":  {},
	"timingwheel/internal/run":    {},

	"internal/bubble":    {},
	"internal/nocopy":    {},
	"internal/parking":   {},
	"internal/shrinking": {},
	"internal/stack":     {},
	"internal/wallclock": {module + "internal/bubble"},

	"internal/wallclock/wallclocktest": {},
}

func TestImportsPointOneWay(t *testing.T) {
	seen := map[string]bool{}
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		usesLibrary := dir == "timingwheel/debug" || strings.HasPrefix(dir, "examples/") && !strings.HasPrefix(dir, "examples/integrations")
		if inNestedModule(dir) && !usesLibrary {
			return nil
		}
		allowed, ok := mayImport[dir]
		if !ok {
			allowed = []string{module + "purgatory", surface, surface + "/pool", surface + "/debug"}
			if strings.HasPrefix(dir, "examples/") {
				allowed = append(allowed, module+"examples/internal", module+"dropin")
			}
		}
		seen[dir] = true
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			ours := slices.ContainsFunc(allowed, func(prefix string) bool {
				return imported == prefix || prefix != surface && strings.HasPrefix(imported, prefix+"/")
			})
			if std := !strings.Contains(strings.Split(imported, "/")[0], "."); !std && !ours {
				t.Errorf("%s imports %s", path, imported)
			}
		}
		return nil
	})
	require.NoError(t, err)
	for dir := range seen {
		if strings.HasPrefix(dir, "internal/") {
			require.Contains(t, mayImport, dir, "internal/ holds only what the library stands on")
		}
	}
	for dir := range mayImport {
		require.True(t, seen[dir], "%s is gone, and with it what this test checks", dir)
	}
}

// Package bucket and the wheel are plain data: they have no lock, no clock and no goroutine.
func TestPlainDataIsPlain(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "bucket", "*.go"))
	require.NoError(t, err)
	files = append(files, filepath.Join(root, "timingwheel", "internal", "engine", "wheel.go"))
	files = slices.DeleteFunc(files, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
	require.Greater(t, len(files), 3)
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, spec := range file.Imports {
			require.NotContains(t, []string{`"sync"`, `"sync/atomic"`, `"time"`, `"context"`}, spec.Path.Value, path)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			_, starts := n.(*ast.GoStmt)
			require.False(t, starts, "%s starts a goroutine", path)
			return true
		})
	}
}

// A program that uses the library does not get a web server with it.
func TestCoreHasNoServer(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "./...")
	list.Dir = root
	deps, err := list.CombinedOutput()
	require.NoError(t, err, "%s", deps)
	require.Contains(t, string(deps), "/timingwheel\n")
	require.Contains(t, string(deps), "/purgatory\n")
	for line := range strings.Lines(string(deps)) {
		require.False(t, strings.HasPrefix(line, "net"), line)
	}
}

// inNestedModule reports whether dir or a folder above it has a go.mod of its own.
func inNestedModule(dir string) bool {
	for ; dir != "."; dir = filepath.ToSlash(filepath.Dir(dir)) {
		if _, err := os.Stat(filepath.Join(root, dir, "go.mod")); err == nil {
			return true
		}
	}
	return false
}

// Nothing but gods and testify may reach a user.
func TestCoreDependsOnLittle(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(strings.TrimPrefix(line, "require"))
		if len(fields) < 2 || !strings.HasPrefix(fields[1], "v") || strings.Contains(line, "// indirect") {
			continue
		}
		require.Contains(t, []string{"github.com/emirpasic/gods", "github.com/stretchr/testify"}, fields[0])
	}
}
