package tickwheel_test

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// surface are the files of what users hold. They reach the shard through entry.go only.
var surface = []string{
	"batch.go", "calendar.go", "canceler.go", "context.go", "family.go", "future.go", "group.go",
	"job.go", "keyed.go", "local.go", "outcome.go", "pooled.go", "rate.go", "ticker.go", "timeout.go", "timer.go",
}

// engine are the types behind the door.
var engine = []string{"shard", "driver", "handoff", "wheel", "slot", "cascade", "turns", "expired"}

// circles are the files that refer to one another in both directions. A shard offers its
// buckets to the driver, and the driver flushes them through the shard and its wheels. What is
// due must pass the gate, back into the shard if it has to wait; the handoff is the gate of an
// executor that may hold the driver up, and has another goroutine drive then.
var circles = [][]string{{
	"driver.go", "flush.go", "gate.go", "handoff.go", "shard.go", "turns.go", "waiting.go", "wheel.go",
}}

// house is package timingwheel with its types resolved.
type house struct {
	fset  *token.FileSet
	files []*ast.File
	pkg   *types.Package
	info  *types.Info
}

// openHouse resolves the types of the standard library, too, and takes seconds. The tests
// share what it returns.
var openHouse = sync.OnceValues(func() (*house, error) {
	h := &house{fset: token.NewFileSet(), info: &types.Info{
		Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
	}}
	paths, err := filepath.Glob("timingwheel/*.go")
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		built, err := build.Default.MatchFile("timingwheel", filepath.Base(path))
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(path, "_test.go") || !built {
			continue
		}
		file, err := parser.ParseFile(h.fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		h.files = append(h.files, file)
	}
	config := types.Config{Importer: importer.ForCompiler(h.fset, "source", nil)}
	h.pkg, err = config.Check(module+"timingwheel", h.fset, h.files, h.info)
	return h, err
})

// fileOf returns the name of the file that has the position.
func (h *house) fileOf(pos token.Pos) string { return filepath.Base(h.fset.Position(pos).Filename) }

// isEngine reports whether t, or what it points to, is a type behind the door.
func (h *house) isEngine(t types.Type) bool {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := t.(*types.Named)
	return ok && named.Obj().Pkg() == h.pkg && slices.Contains(engine, named.Obj().Name())
}

func TestSurfaceReachesTheShardThroughTheDoor(t *testing.T) {
	h, err := openHouse()
	require.NoError(t, err)
	for _, name := range engine {
		require.NotNil(t, h.pkg.Scope().Lookup(name), "%s is gone, and with it what this test checks", name)
	}
	seen := map[string]bool{}
	for _, file := range h.files {
		name := h.fileOf(file.Package)
		if !slices.Contains(surface, name) {
			continue
		}
		seen[name] = true
		ast.Inspect(file, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok {
				if s := h.info.Selections[selector]; s != nil && h.isEngine(s.Recv()) {
					t.Errorf("%s: %s reaches past entry.go", h.fset.Position(n.Pos()), s.Obj().Name())
				}
			}
			return true
		})
	}
	require.Len(t, seen, len(surface), "a file of the surface is gone: %v", seen)
}

func TestFilesFormNoOtherCircles(t *testing.T) {
	h, err := openHouse()
	require.NoError(t, err)
	uses := map[string]map[string]bool{}
	for _, file := range h.files {
		uses[h.fileOf(file.Package)] = map[string]bool{}
	}
	for ident, object := range h.info.Uses {
		from, to := h.fileOf(ident.Pos()), h.fileOf(object.Pos())
		if object.Pkg() == h.pkg && from != to {
			uses[from][to] = true
		}
	}
	require.Equal(t, circles, circlesOf(uses))
}

// circlesOf returns the sets of files that reach one another. The package has few files, so
// the transitive closure is cheap enough.
func circlesOf(uses map[string]map[string]bool) (found [][]string) {
	names := slices.Sorted(maps.Keys(uses))
	reach := map[string]map[string]bool{}
	for _, name := range names {
		reach[name] = map[string]bool{}
		var visit func(from string)
		visit = func(from string) {
			for to := range uses[from] {
				if !reach[name][to] {
					reach[name][to] = true
					visit(to)
				}
			}
		}
		visit(name)
	}
	placed := map[string]bool{}
	for _, a := range names {
		circle := []string{a}
		for _, b := range names {
			if b != a && reach[a][b] && reach[b][a] {
				circle = append(circle, b)
			}
		}
		if len(circle) > 1 && !placed[a] {
			slices.Sort(circle)
			found = append(found, circle)
			for _, name := range circle {
				placed[name] = true
			}
		}
	}
	return found
}
