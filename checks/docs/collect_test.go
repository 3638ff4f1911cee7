package docs

import (
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
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
	blocks []block
}

// collect returns all documents that show Go.
func collect(t *testing.T, root string) (docs []document) {
	for rel := range files(t) {
		switch {
		case strings.HasSuffix(rel, ".md"):
			if doc := (document{path: rel, blocks: fenced(read(t, rel))}); len(doc.blocks) > 0 {
				docs = append(docs, doc)
			}
		case !strings.HasSuffix(rel, "_test.go"):
			docs = append(docs, comments(t, rel)...)
		}
	}
	return docs
}

// files yields the Markdown and Go files of the repository.
func files(t *testing.T) iter.Seq[string] {
	return func(yield func(rel string) bool) {
		err := fs.WalkDir(os.DirFS(root), ".", func(rel string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata"):
				return fs.SkipDir
			case (strings.HasSuffix(rel, ".md") || strings.HasSuffix(rel, ".go")) && !yield(rel):
				return fs.SkipAll
			}
			return nil
		})
		require.NoError(t, err)
	}
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
func comments(t *testing.T, rel string) (docs []document) {
	fset, f := parse(t, rel)
	for _, c := range docComments(f) {
		doc := document{path: rel}
		var p comment.Parser
		for _, part := range p.Parse(c.Text()).Content {
			if code, ok := part.(*comment.Code); ok && isGo(code.Text) {
				doc.blocks = append(doc.blocks, block{fset.Position(c.Pos()).Line, code.Text})
			}
		}
		if len(doc.blocks) > 0 {
			docs = append(docs, doc)
		}
	}
	return docs
}

func parse(t *testing.T, rel string) (*token.FileSet, *ast.File) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, filepath.Join(root, rel), nil, parser.ParseComments)
	require.NoError(t, err)
	return fset, f
}

type docComment struct {
	*ast.CommentGroup
	ofField bool // of a field, a constant or a variable
}

// docComments returns the comments of declarations and of what they have.
func docComments(f *ast.File) (all []docComment) {
	add := func(ofField bool, groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if g != nil {
				all = append(all, docComment{g, ofField})
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.File:
			add(false, n.Doc)
		case *ast.GenDecl:
			add(false, n.Doc)
		case *ast.FuncDecl:
			add(false, n.Doc)
			return false
		case *ast.TypeSpec:
			add(false, n.Doc)
		case *ast.ValueSpec:
			add(true, n.Doc, n.Comment)
		case *ast.Field:
			add(true, n.Doc, n.Comment)
		}
		return true
	})
	return all
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
