package core

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The list of files in jetstream/doc.go names each file once, and a file uses only those that come after it. A name that
// a file uses counts, of a type, a function, a method, a field, a variable or a constant.
func TestFilesOfJetStreamPointOneWay(t *testing.T) {
	dir := filepath.Join(root, "durable/jetstream")
	doc, err := os.ReadFile(filepath.Join(dir, "doc.go"))
	require.NoError(t, err)
	_, list, found := strings.Cut(string(doc), "\n// The files.")
	require.True(t, found)
	order := regexp.MustCompile(`\b\w+\.go\b`).FindAllString(list, -1)

	fset, files := token.NewFileSet(), []*ast.File(nil)
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, name := range names {
		base := filepath.Base(name)
		if strings.HasSuffix(base, "_test.go") || base == "doc.go" {
			continue
		}
		require.Contains(t, order, base, "the list in doc.go does not name it")
		file, err := parser.ParseFile(fset, name, nil, 0)
		require.NoError(t, err)
		files = append(files, file)
	}
	require.Len(t, order, len(files), "the list in doc.go names one twice, or one that is gone")

	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	checker := types.Config{Importer: nothing{}, Error: func(error) {}} // what other packages have is unknown, and does not count
	pkg, _ := checker.Check("jetstream", fset, files, info)
	fileOf := func(p token.Pos) string { return filepath.Base(fset.Position(p).Filename) }
	arrows, back := map[[2]string]bool{}, map[string]bool{}
	for id, o := range info.Uses {
		field, isVar := o.(*types.Var)
		_, isFunc := o.(*types.Func)
		if o.Pkg() != pkg || o.Parent() != pkg.Scope() && !isFunc && !(isVar && field.IsField()) {
			continue // a local one
		}
		from, to := fileOf(id.Pos()), fileOf(o.Pos())
		if arrows[[2]string{from, to}] = true; slices.Index(order, from) > slices.Index(order, to) {
			back[from+" uses "+to+": "+o.Name()] = true
		}
	}
	require.Empty(t, back)
	require.Greater(t, len(arrows), 200, "the test finds no uses any more")
}

// nothing imports packages without their names.
type nothing struct{}

func (nothing) Import(name string) (*types.Package, error) {
	p := types.NewPackage(name, path.Base(name))
	p.MarkComplete()
	return p, nil
}
