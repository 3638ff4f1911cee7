package protocol

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each model has a table of its words, and of the names in the engine that they stand for: the indented lines of a
// comment, after a line that ends with "names in the engine". In a line the words come first, and two spaces. Then come
// places, with ; between them: "claimplan.go: planClaims, standing" for names of package jetstream, "driver: Take" for those of
// another package of durable. A line without words goes on with the places of the one before. Remarks are in
// parentheses.
var (
	tableHeader = regexp.MustCompile(`(?m)^// .* names in the engine:?\n//\n`)
	tableLine   = regexp.MustCompile(`^\t(?:(\S+(?:, \S+)*) {2,}| {2,})(\S.*)$`)
	remark      = regexp.MustCompile(`\s*\([^)]*\)`)
)

// Each word of a table is declared in the model, and each name in the package that the table says, so that none is
// renamed alone. Files may be renamed: all of a package are searched, and the packages within it.
func TestModelsUseNamesOfEngine(t *testing.T) {
	packages := map[string]names{}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	tables, words, places := 0, 0, 0
	for _, file := range files {
		model := names{}
		if model.read(t, file); file == "doc.go" {
			model.readAll(t, ".", "")
		}
		table := tableOf(t, file)
		tables += min(1, len(table))
		for _, line := range table {
			parts := tableLine.FindStringSubmatch(line)
			require.NotNil(t, parts, "%s: a table has no such line: %q", file, line)
			for _, word := range list(parts[1], ",") {
				words++
				if !model[word] {
					t.Errorf("%s: the model does not declare %s: %q", file, word, line)
				}
			}
			for _, place := range list(remark.ReplaceAllString(parts[2], ""), ";") {
				in, of, found := strings.Cut(place, ": ")
				require.True(t, found, "%s: a place is FILE: NAMES or PACKAGE: NAMES: %q", file, line)
				dir := in
				if strings.HasSuffix(in, ".go") {
					dir = "jetstream"
				}
				if packages[dir] == nil {
					packages[dir] = names{}
					packages[dir].readAll(t, "../../"+dir, "_test.go")
				}
				for _, name := range list(of, ",") {
					places++
					if !packages[dir][name] {
						t.Errorf("%s: durable/%s does not declare %s: %q", file, dir, name, line)
					}
				}
			}
		}
	}
	t.Log(words, "words of the models,", places, "names of the engine")
	require.Equal(t, 6, tables, "each model has one")
}

// list returns what is between separators.
func list(s, separator string) []string {
	items := strings.Split(s, separator)
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return slices.DeleteFunc(items, func(item string) bool { return item == "" })
}

// tableOf returns the lines of the table in a file; nil without one.
func tableOf(t *testing.T, file string) (lines []string) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	header := tableHeader.FindIndex(text)
	if header == nil {
		return nil
	}
	for line := range strings.Lines(string(text[header[1]:])) {
		if !strings.HasPrefix(line, "//\t") {
			return lines
		}
		lines = append(lines, strings.TrimSuffix(strings.TrimPrefix(line, "//"), "\n"))
	}
	return lines
}

// names are those that a package declares outside of functions.
type names map[string]bool

// readAll adds those of the files in a folder and in the folders within, but for other modules and for files that end with
// except, if that is not empty.
func (n names) readAll(t *testing.T, dir, except string) {
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		_, noModule := os.Stat(filepath.Join(path, "go.mod"))
		switch {
		case d.IsDir() && path != dir && noModule == nil:
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || except != "" && strings.HasSuffix(path, except):
			return nil
		}
		n.read(t, path)
		return nil
	}))
}

// read adds those of a file.
func (n names) read(t *testing.T, file string) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, decl := range parsed.Decls {
		n.add(decl)
	}
}

func (n names) add(decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		n[decl.Name.Name] = true
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				n[spec.Name.Name] = true
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					n[name.Name] = true
				}
			}
		}
	}
}
