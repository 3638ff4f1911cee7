package docs

import (
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// block is some Go that a document shows.
type block struct {
	line int // in the document, of a doc comment where that begins
	text string
}

// document is a Markdown file, or a doc comment.
type document struct {
	path   string // below the repository
	pkg    string // of a doc comment: the package's name
	blocks []block
}

// collect returns all documents that show Go.
func collect(t *testing.T, root string) (docs []document) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return cmpErr(err, filepath.SkipDir)
		}
		rel, _ := filepath.Rel(root, path)
		switch {
		case strings.HasSuffix(path, ".md"):
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			if doc := (document{path: rel, blocks: fenced(string(text))}); len(doc.blocks) > 0 {
				docs = append(docs, doc)
			}
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			docs = append(docs, comments(t, path, rel)...)
		}
		return nil
	})
	require.NoError(t, err)
	return docs
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// fenced returns the blocks of a Markdown file that say that they are Go.
func fenced(text string) (blocks []block) {
	var lines []string
	begin := 0
	for n, line := range strings.Split(text, "\n") {
		switch {
		case begin == 0 && strings.HasPrefix(line, "```go"):
			begin, lines = n+2, nil
		case begin > 0 && strings.HasPrefix(line, "```"):
			blocks = append(blocks, block{begin, strings.Join(lines, "\n") + "\n"})
			begin = 0
		case begin > 0:
			lines = append(lines, line)
		}
	}
	return blocks
}

// comments returns the doc comments of a file that show Go.
func comments(t *testing.T, path, rel string) (docs []document) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
	require.NoError(t, err)
	var groups []*ast.CommentGroup
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.File:
			groups = append(groups, n.Doc)
		case *ast.GenDecl:
			groups = append(groups, n.Doc)
		case *ast.FuncDecl:
			groups = append(groups, n.Doc)
		case *ast.TypeSpec:
			groups = append(groups, n.Doc)
		case *ast.Field:
			groups = append(groups, n.Doc)
		case *ast.ValueSpec:
			groups = append(groups, n.Doc)
		}
		return true
	})
	for _, g := range groups {
		if g == nil {
			continue
		}
		doc := document{path: rel, pkg: f.Name.Name}
		var p comment.Parser
		for _, part := range p.Parse(g.Text()).Content {
			if code, ok := part.(*comment.Code); ok && isGo(code.Text) {
				doc.blocks = append(doc.blocks, block{fset.Position(g.Pos()).Line, code.Text})
			}
		}
		if len(doc.blocks) > 0 {
			docs = append(docs, doc)
		}
	}
	return docs
}

var (
	goLine  = regexp.MustCompile(`(?m):=|^\s*(defer|go|func) |^import "|^\s*[a-z]\w*(\.\w+)+\(`)
	command = regexp.MustCompile(`(?m)^\s*go (run|test|tool|build|install) `)
	columns = regexp.MustCompile(`(?m)\S {3,}[^/\s]`)
)

// isGo reports whether an indented block of a doc comment is Go, and not a table, a command
// or a formula. It does not depend on whether the block is right.
func isGo(text string) bool {
	return goLine.MatchString(text) && !command.MatchString(text) && !columns.MatchString(text)
}
