package docs

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// TestBlocks type-checks each block. The packages are those that the go command
// builds in a workspace of all modules, so what compiles here compiles for who imports them.
func TestBlocks(t *testing.T) {
	c := newChecker(t)
	t.Run("Compile", func(t *testing.T) { compile(t, c) })
	t.Run("Wrong", func(t *testing.T) { wrong(t, c) })
}

func compile(t *testing.T, c *checker) {
	docs := collect(t, root)
	n := 0
	for _, d := range docs {
		n += len(d.blocks)
		for _, err := range c.check(d) {
			t.Error(err)
		}
	}
	t.Logf("%d blocks in %d documents", n, len(docs))
	require.Greater(t, n, 30, "they are found")
}

// What is wrong in a block is found, and said with the document's line.
func wrong(t *testing.T, c *checker) {
	for text, want := range map[string]string{
		"```go\nref := q.Ad(ctx, durable.Job{})\n```":        "x.md:2: q.Ad undefined",
		"```go\nref, err := q.Add(ctx, \"job\")\n```":        "x.md:2: cannot use",
		"a\n\n```go\nx :=\n```":                              "x.md:5: expected operand",
		"```go\nfoo(ctx)\n```":                               "x.md:2: undefined: foo",
		"```go\npackage main\n\nfunc main() { bar() }\n```":  "x.md:4: undefined: bar",
		"```go\nx := 1\n```\nand\n```go\ny := x + \"\"\n```": "x.md:6: ",
		"```go\nfunc f() int { return \"\" }\n```":           "x.md:2: cannot use",
	} {
		errs := c.check(document{path: "x.md", blocks: fenced(text)})
		require.NotEmpty(t, errs, text)
		require.Contains(t, errs[0].Error(), want)
	}
	for _, text := range []string{
		"```go\nw := timingwheel.New() // a fragment\n...\ndefer w.Stop()\n```",
		"```go\nq.Handle(\"k\", func(ctx context.Context, a *durable.Attempt) error { ... })\n```",
		"```go\nx := 1\n```\nand\n```go\nx := \"\"\n_ = len(x)\n```",
		"```go\nfunc f() int { return 1 }\n```",
		"```sh\nx := :=\n```",
	} {
		require.Empty(t, c.check(document{path: "x.md", blocks: fenced(text)}), text)
	}
}

// checker type-checks documents.
type checker struct {
	fset    *token.FileSet
	paths   map[string]string            // import paths by the name of the package
	names   map[string]map[string]string // declarations by document, "" for all, and name
	imports types.Importer
}

// importing imports what the go command has built, and the stubs of what no module has.
type importing struct {
	fset     *token.FileSet
	compiled types.Importer
	stubs    map[string]*types.Package
}

func (i *importing) Import(pkg string) (*types.Package, error) {
	name, isStub := strings.CutPrefix(pkg, "stub/")
	if !isStub {
		return i.compiled.Import(pkg)
	}
	if i.stubs[name] == nil {
		f, err := parser.ParseFile(i.fset, "testdata/stub/"+name+".go", nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		conf := types.Config{Importer: i.compiled}
		if i.stubs[name], err = conf.Check(pkg, i.fset, []*ast.File{f}, nil); err != nil {
			return nil, err
		}
	}
	return i.stubs[name], nil
}

func newChecker(t *testing.T) *checker {
	c := &checker{fset: token.NewFileSet(), paths: map[string]string{}, names: map[string]map[string]string{}}
	exports := map[string]string{}
	for _, line := range listed(t) {
		name, rest, _ := strings.Cut(line, " ")
		pkg, export, _ := strings.Cut(rest, " ")
		if exports[pkg] = export; name != "main" && !strings.Contains(pkg, "internal/") && better(pkg, c.paths[name]) {
			c.paths[name] = pkg
		}
	}
	compiled := importer.ForCompiler(c.fset, "gc", func(pkg string) (io.ReadCloser, error) {
		if exports[pkg] == "" {
			return nil, fmt.Errorf("no module of the repository has %q", pkg)
		}
		return os.Open(exports[pkg])
	})
	c.imports = &importing{c.fset, compiled, map[string]*types.Package{}}
	c.readNames(t)
	return c
}

func (c *checker) readNames(t *testing.T) {
	text, err := os.ReadFile("testdata/names.txt")
	require.NoError(t, err)
	for section := ""; len(text) > 0; {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte("\n"))
		switch words := strings.Fields(string(line)); {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "in":
			section = words[1]
		default:
			if c.names[section] == nil {
				c.names[section] = map[string]string{}
			}
			c.names[section][strings.TrimRight(strings.SplitN(words[1], "(", 2)[0], ",")] = string(line)
		}
	}
}

// better reports whether a name without an import is a package's rather than the other's: the
// repository's own come first, but for the drop-ins, then those of the standard library, and
// among others the shorter path.
func better(pkg, other string) bool {
	if other == "" || class(pkg) != class(other) {
		return other == "" || class(pkg) < class(other)
	}
	return len(pkg) < len(other)
}

func class(pkg string) int {
	const own = "github.com/tickwheel/tickwheel/"
	switch first, _, _ := strings.Cut(pkg, "/"); {
	case strings.HasPrefix(pkg, own) && !strings.HasPrefix(pkg, own+"dropin/"):
		return 0
	case !strings.Contains(first, "."):
		return 1
	}
	return 2
}

// listed has the go command build all packages of the workspace's modules and what they
// import, and returns their names, paths and files.
func listed(t *testing.T) []string {
	work, err := os.ReadFile(filepath.Join(root, "go.work"))
	require.NoError(t, err)
	patterns := []string{"./checks/clocks"} // for what adapters/README.md imports
	for _, use := range regexp.MustCompile(`(?m)^\t(\.\S*)`).FindAllStringSubmatch(string(work), -1) {
		if use[1] != "./checks" { // no document imports the rest of it
			patterns = append(patterns, use[1]+"/...")
		}
	}
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.Name}} {{.ImportPath}} {{.Export}}"}, patterns...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

var (
	ellipsis = regexp.MustCompile(`(?m)\{ \.\.\. \}|^\s*\.\.\.$`)
	noFunc   = regexp.MustCompile(`(?m)^(func|type) \w`)
	imported = regexp.MustCompile(`(?m)^import (\w+ )?"[^"]+"$|^import \((\n\t[^\n]*|\n)*\n\)$`)
)

// check returns what is wrong with a document. Its blocks of statements are one function,
// each in a scope within that of those before it.
func (c *checker) check(d document) (errs []error) {
	var imports, body, ends string
	for _, b := range d.blocks {
		text := ellipsis.ReplaceAllStringFunc(b.text, func(s string) string {
			if strings.HasPrefix(s, "{") {
				return `{ panic("") }`
			}
			return ""
		})
		switch {
		case strings.Contains(text, "package "):
			errs = append(errs, c.checkFile(d, c.at(d, b)+text, false)...)
			continue
		case noFunc.MatchString(text):
			errs = append(errs, c.checkFile(d, "package docs\n"+c.at(d, b)+text, true)...)
			continue
		}
		imports += strings.Join(imported.FindAllString(text, -1), "\n") + "\n"
		text = imported.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
		body += "{\n" + c.at(d, b) + text
		ends += "}"
	}
	if body != "" {
		errs = append(errs, c.checkFile(d, "package docs\n"+imports+"func _() (_ error) {"+body+ends+";return}\n", true)...)
	}
	return errs
}

// at is a comment that says from where what follows is.
func (c *checker) at(d document, b block) string {
	return fmt.Sprintf("\n//line %s:%d\n", d.path, b.line)
}

// checkFile type-checks a file. What a fragment leaves undeclared is declared beside it, and
// what it does not import is imported.
func (c *checker) checkFile(d document, text string, fragment bool) []error {
	f, err := parser.ParseFile(c.fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return []error{err}
	}
	if !fragment {
		return c.typeCheck(d, f)
	}
	decls := map[string]string{}
	for range 5 { // a declaration may need others
		imports, rest := inOrder(decls)
		beside, err := parser.ParseFile(c.fset, "names.txt", "package docs\n"+imports+rest, parser.SkipObjectResolution)
		if err != nil {
			return []error{err}
		}
		before := len(decls)
		for _, name := range c.undeclared(f, beside) {
			if decl := c.declaration(d, name); decl != "" {
				decls[name] = decl
			}
		}
		if len(decls) == before {
			return c.typeCheck(d, f, beside)
		}
		// Imports are declared for a file: each of the two has them.
		imports, _ = inOrder(decls)
		text := strings.Replace(text, "package docs\n", "package docs\n"+imports, 1)
		if f, err = parser.ParseFile(c.fset, "", text, parser.SkipObjectResolution); err != nil {
			return []error{err}
		}
	}
	return []error{fmt.Errorf("%s: its names need too many others", d.path)}
}

// inOrder returns the text of declarations, imports apart.
func inOrder(decls map[string]string) (imports, rest string) {
	for _, decl := range slices.Sorted(maps.Values(decls)) {
		if strings.HasPrefix(decl, "import ") {
			imports += decl + "\n"
		} else {
			rest += decl + "\n"
		}
	}
	return imports, rest
}

// declaration returns what declares a name for a document: by names.txt, or as a package.
func (c *checker) declaration(d document, name string) string {
	for _, section := range []string{d.path, path.Dir(d.path), ""} {
		if decl := c.names[section][name]; decl != "" {
			return decl
		}
	}
	if pkg := c.paths[name]; pkg != "" {
		return fmt.Sprintf("import %s %q", name, pkg)
	}
	return ""
}

var undefined = regexp.MustCompile(`undefined: (\w+)$`)

// undeclared returns the names that files use and nobody declares.
func (c *checker) undeclared(files ...*ast.File) (names []string) {
	conf := types.Config{Importer: c.imports, Error: func(err error) {
		if m := undefined.FindStringSubmatch(err.(types.Error).Msg); m != nil {
			names = append(names, m[1])
		}
	}}
	conf.Check("docs", c.fset, files, nil)
	return names
}

// tolerated is what a fragment may have: variables, imports and results that it does nothing
// with.
var tolerated = regexp.MustCompile(`^declared and not used|imported and not used|imported as \w+ and not used|^missing return`)

func (c *checker) typeCheck(d document, files ...*ast.File) (errs []error) {
	conf := types.Config{Importer: c.imports, Error: func(err error) {
		if !tolerated.MatchString(err.(types.Error).Msg) || len(files) == 1 {
			errs = append(errs, err)
		}
	}}
	conf.Check("docs", c.fset, files, nil)
	return errs
}
