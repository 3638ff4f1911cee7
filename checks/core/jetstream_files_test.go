package core

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The lists of files of package jetstream and of its client of a stream name each file once, and a file uses only those
// that come after it.
func TestFilesOfJetStreamPointOneWay(t *testing.T) {
	filesPointOneWay(t, "durable/jetstream", "doc.go", 200)
	filesPointOneWay(t, "durable/jetstream/internal/stream", "stream.go", 25)
}

// filesPointOneWay checks a package by the list in one of its files. A name that a file uses counts, of a type, a
// function, a method, a field, a variable or a constant. There are more than least pairs of files of which one uses the
// other.
func filesPointOneWay(t *testing.T, folder, listed string, least int) {
	doc, err := os.ReadFile(filepath.Join(root, folder, listed))
	require.NoError(t, err)
	_, list, found := strings.Cut(string(doc), "\n// The files.")
	require.True(t, found)
	list, _, _ = strings.Cut(list, "\npackage ")
	order := regexp.MustCompile(`\b\w+\.go\b`).FindAllString(list, -1)

	fset, files, uses := usesOf(t, folder)
	fileOf := func(p token.Pos) string { return filepath.Base(fset.Position(p).Filename) }
	for _, file := range files {
		require.Contains(t, order, fileOf(file.Pos()), "the list in %s does not name it", listed)
	}
	require.Len(t, order, len(files), "the list in %s names one twice, or one that is gone", listed)
	arrows, back := map[[2]string]bool{}, map[string]bool{}
	for id, o := range uses {
		from, to := fileOf(id.Pos()), fileOf(o.Pos())
		if arrows[[2]string{from, to}] = true; slices.Index(order, from) > slices.Index(order, to) {
			back[from+" uses "+to+": "+o.Name()] = true
		}
	}
	require.Empty(t, back)
	require.Greater(t, len(arrows), least, "the test finds no uses any more")
}

// usesOf returns the files of a package without doc.go and the tests, and each place in them that uses a name of the package.
func usesOf(t *testing.T, folder string) (*token.FileSet, []*ast.File, map[*ast.Ident]types.Object) {
	fset, files := token.NewFileSet(), []*ast.File(nil)
	names, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || filepath.Base(name) == "doc.go" {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		require.NoError(t, err)
		files = append(files, file)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	checker := types.Config{Importer: nothing{}, Error: func(error) {}} // what other packages have is unknown, and does not count
	pkg, _ := checker.Check(folder, fset, files, info)
	maps.DeleteFunc(info.Uses, func(_ *ast.Ident, o types.Object) bool {
		field, isVar := o.(*types.Var)
		_, isFunc := o.(*types.Func)
		return o.Pkg() != pkg || o.Parent() != pkg.Scope() && !isFunc && !(isVar && field.IsField()) // a local one
	})
	return fset, files, info.Uses
}

// nothing imports packages without their names.
type nothing struct{}

func (nothing) Import(name string) (*types.Package, error) {
	p := types.NewPackage(name, path.Base(name))
	p.MarkComplete()
	return p, nil
}
