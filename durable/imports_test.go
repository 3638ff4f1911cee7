package durable_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
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
		module + "/driver", module + "/internal/batch", module + "/internal/clock", module + "/internal/held",
		module + "/internal/recur", module + "/internal/valid", module + "/internal/worker",
		module + "/internal/worker/attempt", module + "/cron", core + "timingwheel",
		core + "internal/wallclock",
	},
	"internal/worker": {
		module + "/driver", module + "/internal/batch", module + "/internal/clock", module + "/internal/held", module + "/internal/recur",
		module + "/internal/worker/attempt", module + "/internal/worker/dispatch", core + "timingwheel",
	},
	"internal/worker/attempt":  {module + "/driver", module + "/internal/clock", module + "/internal/recur", module + "/internal/valid"},
	"internal/worker/dispatch": {module + "/driver", module + "/internal/batch"},
	"internal/recur":           {module + "/driver", module + "/internal/clock", module + "/internal/unread", module + "/internal/valid", module + "/cron"},
	"driver":                   {module + "/internal/clock", module + "/internal/unread", module + "/internal/valid"},
	"cron":                     {core + "timingwheel"},
	"internal/batch":           {core + "internal/stack"},
	"internal/clock":           {},
	"internal/held":            {},
	"internal/unread":          {},
	"internal/valid":           {},
	"memory":                   {module + "/driver", module + "/internal/clock", module + "/internal/held"},
	"enginetest":               {module, module + "/driver", module + "/testservers/busy", module + "/memory"},
	"crashtest":                {module, module + "/driver", module + "/memory"},
	"admin":                    {module, core + "timingwheel"},
	"testservers/busy":         {},
	"testservers/pgserver":     {module + "/testservers/ports"},
	"testservers/ports":        {},
}

func TestImportsPointOneWay(t *testing.T) {
	seen := map[string]bool{}
	eachFile(t, func(file string, imports []string) {
		dir := path.Dir(file)
		allowed, named := mayImport[dir]
		if !named || strings.HasSuffix(file, "_test.go") {
			return
		}
		seen[dir] = true
		for _, imported := range imports {
			if strings.HasPrefix(imported, core) && !slices.Contains(allowed, imported) {
				t.Errorf("%s imports %s", file, imported)
			}
		}
	})
	for dir := range mayImport {
		require.True(t, seen[dir], "%s is gone, and with it what this test checks", dir)
	}
}

// A file of package durable that uses a name of another is not used by that, nor by the files that it
// uses: so each can be read after those that it uses.
func TestFilesPointOneWay(t *testing.T) {
	uses := usesOf(t, ".")
	require.True(t, uses["run.go"]["queue.go"], "the test sees that Run is a method of Queue")
	var visit func(file string, path []string)
	visit = func(file string, path []string) {
		if i := slices.Index(path, file); i >= 0 {
			t.Fatalf("files use each other: %v", append(path[i:], file))
		}
		for used := range uses[file] {
			visit(used, append(path, file))
		}
	}
	for file := range uses {
		visit(file, nil)
	}
}

// usesOf returns, for each file of a package, the others of which it uses a name. It does not read the
// packages that are imported: names of these are no names of the package.
func usesOf(t *testing.T, dir string) map[string]map[string]bool {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	set, info := token.NewFileSet(), &types.Info{Uses: map[*ast.Ident]types.Object{}}
	var files []*ast.File
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(set, name, nil, 0)
			require.NoError(t, err)
			files = append(files, file)
		}
	}
	config := types.Config{Importer: noImports{}, Error: func(error) {}} // errors: whatever has an imported type
	pkg, _ := config.Check("durable", set, files, info)
	uses := map[string]map[string]bool{}
	for name, object := range info.Uses {
		from, to := set.Position(name.Pos()).Filename, set.Position(object.Pos()).Filename
		if object.Pkg() == pkg && from != to {
			if uses[from] == nil {
				uses[from] = map[string]bool{}
			}
			uses[from][to] = true
		}
	}
	return uses
}

type noImports struct{}

func (noImports) Import(imported string) (*types.Package, error) {
	pkg := types.NewPackage(imported, path.Base(imported))
	pkg.MarkComplete()
	return pkg, nil
}

// Each module that a file of this module imports, tests included, is in the module graph of each
// user. With the client or server of one engine, users of the other engines would have it, too.
func TestImportsNoClientAndNoServer(t *testing.T) {
	others := []string{"github.com/stretchr/testify/assert", "github.com/stretchr/testify/require", "github.com/netresearch/go-cron"}
	ours := []string{"..", "../durable"} // the core and this module
	eachFile(t, func(file string, imports []string) {
		for _, imported := range imports {
			standard := !strings.Contains(strings.Split(imported, "/")[0], ".")
			own := strings.HasPrefix(imported, core) && slices.Contains(ours, moduleOf(imported))
			if !standard && !own && !slices.Contains(others, imported) {
				t.Errorf("%s imports %s", file, imported)
			}
		}
	})
}

// moduleOf returns the folder of the module that has a package of this project.
func moduleOf(imported string) string {
	dir := path.Join("..", strings.TrimPrefix(imported, core))
	for ; dir != ".."; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	return dir
}

// eachFile calls f with each Go file of this module.
func eachFile(t *testing.T, f func(file string, imports []string)) {
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(name, "go.mod")); name != "." && err == nil {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		var imports []string
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			imports = append(imports, imported)
		}
		f(filepath.ToSlash(name), imports)
		return nil
	}))
}
