package core

import (
	"bytes"
	"go/constant"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Packages dropin/time and dropin/context have the exported names of the standard library's,
// each with the same type, and no others. So a new release of Go shows what is missing.
func TestDropInHasAllNames(t *testing.T) {
	importer := exportData(t, "./dropin/...")
	for _, path := range []string{"time", "context"} {
		std, err := importer.Import(path)
		require.NoError(t, err)
		ours, err := importer.Import(module + "dropin/" + path)
		require.NoError(t, err)
		require.Equal(t, std.Name(), ours.Name())
		for _, name := range std.Scope().Names() {
			if token.IsExported(name) {
				comparePair(t, std.Scope().Lookup(name), ours.Scope().Lookup(name))
			}
		}
		for _, name := range ours.Scope().Names() {
			if token.IsExported(name) && std.Scope().Lookup(name) == nil {
				t.Errorf("dropin/%s.%s is not in package %s", path, name, path)
			}
		}
	}
}

// exportData returns an importer of packages and all that they import. It reads what the
// compiler has written about them.
func exportData(t *testing.T, pattern string) types.Importer {
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", pattern)
	list.Dir, list.Stderr = root, os.Stderr
	lines, err := list.Output()
	require.NoError(t, err)
	files := map[string]string{}
	for line := range strings.Lines(string(lines)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		data, err := os.ReadFile(files[path])
		return io.NopCloser(bytes.NewReader(data)), err
	})
}

// comparePair compares a name of the standard library with ours, which is nil if there is none.
func comparePair(t *testing.T, std, ours types.Object) {
	name := std.Pkg().Path() + "." + std.Name()
	if ours == nil {
		t.Errorf("dropin/%s is missing: %s", name, types.ObjectString(std, nil))
		return
	}
	require.IsType(t, std, ours, name)
	switch std := std.(type) {
	case *types.Const:
		require.True(t, constant.Compare(std.Val(), token.EQL, ours.(*types.Const).Val()), name)
	case *types.TypeName:
		if types.Identical(std.Type(), ours.Type()) {
			return
		}
		require.Equal(t, "time.Timer", name, "the only type that is not the standard library's own")
		compareMembers(t, std, ours.(*types.TypeName))
		return
	}
	require.Equal(t, typeString(std), typeString(ours), name)
}

// compareMembers compares a type that is not the standard library's own: it has the
// exported fields and methods of that, and may have more.
func compareMembers(t *testing.T, std, ours *types.TypeName) {
	pointer := types.NewPointer(std.Type())
	members := 0
	compare := func(name string) {
		member, _, _ := types.LookupFieldOrMethod(types.NewPointer(ours.Type()), true, ours.Pkg(), name)
		require.NotNil(t, member, "%s.%s.%s", std.Pkg().Path(), std.Name(), name)
		want, _, _ := types.LookupFieldOrMethod(pointer, true, std.Pkg(), name)
		require.Equal(t, typeString(want), typeString(member), name)
		members++
	}
	for i := range std.Type().Underlying().(*types.Struct).NumFields() {
		if field := std.Type().Underlying().(*types.Struct).Field(i); field.Exported() {
			compare(field.Name())
		}
	}
	for method := range types.NewMethodSet(pointer).Methods() {
		if method.Obj().Exported() {
			compare(method.Obj().Name())
		}
	}
	require.Greater(t, members, 1, "of %s: C, and a method", std.Name())
}

// typeString returns the type of an object without the names of packages, so that
// *timingwheel.Timer and *time.Timer are the same.
func typeString(o types.Object) string {
	return types.TypeString(o.Type(), func(*types.Package) string { return "" })
}
