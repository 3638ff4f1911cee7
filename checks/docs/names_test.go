package docs

import (
	"go/ast"
	"go/doc/comment"
	"go/scanner"
	"go/token"
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

var (
	word     = regexp.MustCompile(`\w+`)
	camel    = regexp.MustCompile(`(?:^|[^\w./"'` + "`" + `$%-])([a-z][a-z0-9]*[A-Z]\w*)\b`)
	member   = regexp.MustCompile(`(?:^|[^\w.])([A-Z][A-Za-z0-9]*)\.([a-z]\w*)\b`)
	fileName = regexp.MustCompile(`(?:^|[^\w./*<-])((?:[\w-]+/)*[\w-]+\.(?:go|sql|js|css))(?:[^\w.]|\.\s|$)`)
	inFile   = regexp.MustCompile(`(?m)\b(\w+\.go): ([a-zA-Z]\w*(?:, [a-zA-Z]\w*)*)(?:;|, with |$)`)
	sqlNote  = regexp.MustCompile(`--.*`)
	jsNote   = regexp.MustCompile(`/\*(?s:.*?)\*/|(?m:(?:^|\s)//.*$)`)
)

// ofOther is a member of each alias, whose members another package declares.
const ofOther = "*"

// ownTest has names of things that are gone.
const ownTest = "checks/docs/names_test.go"

// TestDocLinksLeadSomewhere finds links of doc comments to names that the package has not.
func TestDocLinksLeadSomewhere(t *testing.T) {
	packages, links := map[string]*names{}, 0
	of := func(rel string) *names {
		dir := path.Dir(rel)
		if packages[dir] == nil {
			packages[dir] = newNames()
		}
		return packages[dir]
	}
	for rel := range files(t) {
		if strings.HasSuffix(rel, ".go") && rel != ownTest {
			of(rel).addGo(t, rel)
		}
	}
	anything := comment.Parser{LookupSym: func(_, _ string) bool { return true }}
	for rel := range files(t) {
		if !strings.HasSuffix(rel, ".go") {
			continue
		}
		fset, f := parse(t, rel)
		for _, c := range docComments(f) {
			for _, name := range docLinks(anything.Parse(c.Text())) {
				links++
				if !of(rel).has(name) {
					t.Errorf("%s:%d: [%s] leads nowhere", rel, fset.Position(c.Pos()).Line, name)
				}
			}
		}
	}
	require.Greater(t, links, 100, "they are found")
}

// docLinks returns the links of a doc comment to names of its own package.
func docLinks(d *comment.Doc) (all []string) {
	texts := func(from []comment.Text) {
		for _, text := range from {
			if link, ok := text.(*comment.DocLink); ok && link.ImportPath == "" {
				all = append(all, strings.TrimPrefix(link.Recv+"."+link.Name, "."))
			}
		}
	}
	var blocks func(from []comment.Block)
	blocks = func(from []comment.Block) {
		for _, b := range from {
			switch b := b.(type) {
			case *comment.Paragraph:
				texts(b.Text)
			case *comment.List:
				for _, item := range b.Items {
					blocks(item.Content)
				}
			}
		}
	}
	blocks(d.Content)
	return all
}

// has reports whether a package declares a name, or the type and the member.
func (n *names) has(name string) bool {
	of, member, isMember := strings.Cut(name, ".")
	if isMember {
		return n.types[of][member] || n.types[of][ofOther]
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(n.declared)), func(in map[string]bool) bool { return in[of] })
}

// names are the words of the repository's code, without its comments.
type names struct {
	words    map[string]bool            // of any language, and in texts
	types    map[string]map[string]bool // the members of the types of one name
	files    map[string]bool            // by path and by base name
	declared map[string]map[string]bool // of the Go files of one base name
	foreign  map[string]bool            // names that are not the repository's own
}

func newNames() *names {
	return &names{map[string]bool{}, map[string]map[string]bool{}, map[string]bool{}, map[string]map[string]bool{}, map[string]bool{}}
}

// TestCommentsNameWhatExists finds, in each comment of Go, SQL and JavaScript and in each
// Markdown file, names that nothing has: an identifier of several words, such as newTimer; the
// member of a type, such as Timer.stop; a file, such as timer.go; and what a list says to be in
// one, such as "timer.go: stop, reset". testdata/foreign.txt has the names of other code.
func TestCommentsNameWhatExists(t *testing.T) {
	n, found := collectNames(t)
	for _, c := range found {
		for _, dead := range n.dead(c.text) {
			t.Errorf("%s:%d: nothing is named %s", c.path, c.line+strings.Count(c.text[:strings.Index(c.text, dead)], "\n"), dead)
		}
	}
	require.Greater(t, len(found), 1000, "they are found")
}

// The names of things that are gone are found.
func TestDeadNamesAreFound(t *testing.T) {
	n := &names{
		words: map[string]bool{"newTimer": true, "stop": true}, types: map[string]map[string]bool{"Timer": {"stop": true}},
		files:    map[string]bool{"timer.go": true},
		declared: map[string]map[string]bool{"timer.go": {"stop": true, "newTimer": true}}, foreign: map[string]bool{"procPin": true},
	}
	for text, want := range map[string][]string{
		"ReadName reads what newWorkerName has made":                                     {"newWorkerName"},
		"times of before the clock was set: see Rule.tokens":                             {"Rule.tokens"},
		"`timer.go`, `sleeper.go`: what it sleeps on":                                    {"sleeper.go"},
		"claim     timer.go: stop, floor":                                                {"floor"},
		"Timer.stop and Timer.reset":                                                     {"Timer.reset"},
		"newTimer uses procPin, see timer.go: stop, newTimer. A SetDeadline of net.Conn": nil,
	} {
		require.Equal(t, want, n.dead(text), text)
	}
}

// dead returns the names in a text that nothing has.
func (n *names) dead(text string) (all []string) {
	for _, m := range camel.FindAllStringSubmatch(text, -1) {
		if !n.words[m[1]] && !n.foreign[m[1]] {
			all = append(all, m[1])
		}
	}
	for _, m := range member.FindAllStringSubmatch(text, -1) {
		if name := m[1] + "." + m[2]; !n.types[m[1]][m[2]] && !n.foreign[name] && !n.files[name] {
			all = append(all, name)
		}
	}
	for _, m := range fileName.FindAllStringSubmatch(text, -1) {
		if !n.files[m[1]] && !n.foreign[m[1]] {
			all = append(all, m[1])
		}
	}
	for _, m := range inFile.FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(m[2], ", ") {
			if in := n.declared[m[1]]; in != nil && !in[name] && !n.foreign[name] {
				all = append(all, name)
			}
		}
	}
	return all
}

// remark is a comment, or a Markdown file.
type remark struct {
	path string
	line int
	text string
}

// collectNames reads all files that git knows.
func collectNames(t *testing.T) (*names, []remark) {
	list, err := exec.Command("git", "-C", root, "ls-files").Output()
	if err != nil {
		t.Skip("no git: ", err)
	}
	n := newNames()
	for w := range strings.FieldsSeq(read(t, "checks/docs/testdata/foreign.txt")) {
		n.foreign[w] = true
	}
	n.addWords(read(t, "checks/docs/testdata/names.txt"))
	var all []remark
	for rel := range strings.FieldsSeq(string(list)) {
		if _, err := os.Stat(filepath.Join(root, rel)); err != nil || rel == ownTest {
			continue // it was removed, and git does not know yet
		}
		n.addFile(rel)
		switch path.Ext(rel) {
		case ".go":
			all = append(all, n.addGo(t, rel)...)
		case ".sql":
			all = append(all, n.addOther(rel, read(t, rel), sqlNote)...)
		case ".js", ".css":
			all = append(all, n.addOther(rel, read(t, rel), jsNote)...)
		case ".md":
			all = append(all, remark{rel, 1, read(t, rel)})
		default:
			if !strings.Contains(rel, "testdata/") && filepath.Ext(rel) != ".svg" && filepath.Ext(rel) != ".png" {
				n.addWords(read(t, rel))
			}
		}
	}
	return n, all
}

// addFile adds a path, and each of its ends.
func (n *names) addFile(rel string) {
	for n.files[rel] = true; strings.Contains(rel, "/"); n.files[rel] = true {
		_, rel, _ = strings.Cut(rel, "/")
	}
}

func (n *names) addWords(text string) {
	for _, w := range word.FindAllString(text, -1) {
		n.words[w] = true
	}
}

// addOther adds the words of a text without its comments, and returns these.
func (n *names) addOther(rel, text string, comment *regexp.Regexp) (all []remark) {
	for _, at := range comment.FindAllStringIndex(text, -1) {
		all = append(all, remark{rel, 1 + strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]]})
	}
	n.addWords(comment.ReplaceAllString(text, ""))
	return all
}

// addGo adds the words, types and declarations of a Go file, and returns its comments.
func (n *names) addGo(t *testing.T, rel string) (all []remark) {
	fset, f := parse(t, rel)
	for _, g := range f.Comments {
		all = append(all, remark{rel, fset.Position(g.Pos()).Line, raw(g)})
	}
	n.addTokens(read(t, rel))
	base := path.Base(rel)
	if n.declared[base] == nil {
		n.declared[base] = map[string]bool{}
	}
	ast.Inspect(f, func(node ast.Node) bool {
		switch d := node.(type) {
		case *ast.FuncDecl:
			n.declared[base][d.Name.Name] = true
			if d.Recv != nil {
				n.addMember(receiver(d.Recv.List[0].Type), d.Name.Name)
			}
		case *ast.TypeSpec:
			n.declared[base][d.Name.Name] = true
			n.addMembers(d)
		case *ast.ValueSpec:
			for _, name := range d.Names {
				n.declared[base][name.Name] = true
			}
		}
		return true
	})
	return all
}

// addTokens adds the identifiers and the words of the texts of a Go file.
func (n *names) addTokens(text string) {
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(text)), []byte(text), nil, 0)
	for {
		switch _, tok, lit := s.Scan(); tok {
		case token.EOF:
			return
		case token.IDENT, token.STRING:
			n.addWords(lit)
		}
	}
}

// raw returns a comment with its code. Lines stay.
func raw(g *ast.CommentGroup) string {
	var lines []string
	for _, c := range g.List {
		lines = append(lines, c.Text)
	}
	return strings.Join(lines, "\n")
}

func (n *names) addMember(of, name string) {
	if n.types[of] == nil {
		n.types[of] = map[string]bool{}
	}
	n.types[of][name] = true
}

func (n *names) addMembers(d *ast.TypeSpec) {
	if d.Assign.IsValid() {
		n.addMember(d.Name.Name, ofOther)
	}
	ast.Inspect(d.Type, func(node ast.Node) bool {
		if field, ok := node.(*ast.Field); ok {
			for _, name := range field.Names {
				n.addMember(d.Name.Name, name.Name)
			}
		}
		return true
	})
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
