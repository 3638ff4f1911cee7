package core

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// values are the exported types with hidden fields that may be copied, and the reason.
var values = map[string]string{
	"durable/cron.Spec":          "it never changes",
	"durable/driver.Attempt":     "a copy completes the same attempt",
	"durable/driver.FlowControl": "it never changes",
	"durable/driver.Job":         "the name of a schedule is copied with it",
	"durable/driver.StoredLimit": "it never changes",
	"durable/enginetest.Memory":  "a copy is of the same store",
	"durable/postgres.Engine":    "a copy is the same engine",
	"timingwheel.Timeout":        "a handle without an allocation",
	"timingwheel/pool.WhenFull":  "it never changes",
}

// A copy of a type that must not be copied is found by go vet. That is every exported type with hidden
// fields, of all packages, except for values: a new type has to be in one of the two.
func TestVetFindsCopies(t *testing.T) {
	types := opaqueTypes(t)
	imports, copies, lines := "", "", map[string]string{}
	names := map[string]string{} // of packages, in the file
	for _, of := range slices.Sorted(maps.Keys(types)) {
		dir := of[:strings.LastIndex(of, ".")]
		if names[dir] == "" {
			names[dir] = fmt.Sprintf("p%d", len(names))
			imports += fmt.Sprintf("import %s %q\n", names[dir], module+dir)
		}
	}
	first := 2 + strings.Count(imports, "\n")
	for i, of := range slices.Sorted(maps.Keys(types)) {
		dot := strings.LastIndex(of, ".")
		copies += fmt.Sprintf("func _(p *%s.%s%s) { v := *p; _ = v }\n", names[of[:dot]], of[dot+1:], types[of])
		lines[fmt.Sprint(first+i)] = of
	}
	file := filepath.Join(t.TempDir(), "copies.go")
	require.NoError(t, os.WriteFile(file, []byte("package copies\n"+imports+copies), 0o644))
	vet := exec.Command("go", "vet", "-copylocks", file)
	vet.Dir = root
	out, _ := vet.CombinedOutput()
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`copies\.go:(\d+):\d+: assignment copies lock value`).FindAllStringSubmatch(string(out), -1) {
		found[lines[m[1]]] = true
	}
	require.NotEmpty(t, found, "%s", out)
	for of := range types {
		_, isValue := values[of]
		require.NotEqual(t, isValue, found[of], "%s: if it may be copied, it is one of values; if not, it needs a nocopy.Mark", of)
	}
	for of := range values {
		require.Contains(t, types, of)
	}
}

// opaqueTypes returns the exported types with hidden fields, by folder and name, and for a generic
// one its instance.
func opaqueTypes(t *testing.T) map[string]string {
	found := map[string]string{}
	skip := regexp.MustCompile(`(^|/)(internal|testdata|examples|benchmarks|checks|trials|tests|testservers|cmd|\..+)(/|$)`)
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skip.MatchString(path):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, 0)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range decl.Specs {
				spec, ok := s.(*ast.TypeSpec)
				if !ok || !spec.Name.IsExported() || spec.Assign != 0 || !isOpaque(spec.Type) {
					continue
				}
				instance := ""
				if spec.TypeParams != nil {
					instance = "[" + strings.Repeat("int,", spec.TypeParams.NumFields()) + "]"
				}
				found[filepath.ToSlash(filepath.Dir(path))+"."+spec.Name.Name] = instance
			}
		}
		return nil
	})
	require.NoError(t, err)
	return found
}

// isOpaque reports whether a type is a struct with hidden fields, or one of another package under a
// name of its own.
func isOpaque(of ast.Expr) bool {
	switch of := of.(type) {
	case *ast.SelectorExpr:
		return true
	case *ast.StructType:
		for _, field := range of.Fields.List {
			names := field.Names
			if name, ok := field.Type.(*ast.Ident); ok && len(names) == 0 {
				names = []*ast.Ident{name} // it is embedded
			}
			if len(names) > 0 && !names[0].IsExported() {
				return true
			}
		}
	}
	return false
}
