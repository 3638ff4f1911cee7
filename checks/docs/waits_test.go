package docs

import (
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	someWait = regexp.MustCompile(`Some methods wait, in a task too:((?:[^.]|\.\w)+)`)
	mayWait  = regexp.MustCompile(`^(timingwheel(/pool)?|purgatory|delayqueue)/\w+\.go$`)
	aMethod  = regexp.MustCompile(`[A-Z][\w.]*\w`)
)

// The doc comment of each method that waits says so, and until when. doc.go of package timingwheel names these
// methods of that package and of pool, and no others. Every method with a ctx waits, and says that ctx ends it.
func TestDocsNameWhatWaits(t *testing.T) {
	_, doc := parse(t, "timingwheel/doc.go")
	list := someWait.FindStringSubmatch(doc.Doc.Text())
	require.NotNil(t, list)
	var say []string
	for rel := range files(t) {
		if !mayWait.MatchString(rel) || strings.HasSuffix(rel, "_test.go") {
			continue
		}
		_, f := parse(t, rel)
		ast.FileExports(f)
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				says, ctx := saysWaits(f), slices.ContainsFunc(f.Type.Params.List, isCtx)
				if ctx && !(says && strings.Contains(f.Doc.Text(), "ctx")) {
					t.Errorf("%s: the doc comment of %s does not say until when it waits", rel, f.Name)
				}
				if says && strings.HasPrefix(rel, "timingwheel") {
					of, _, _ := strings.Cut(types.ExprString(f.Recv.List[0].Type), "[")
					say = append(say, strings.TrimPrefix(strings.TrimPrefix(of, "*")+"."+f.Name.Name, "TimingWheel."))
				}
			}
		}
	}
	require.ElementsMatch(t, aMethod.FindAllString(list[1], -1), say, "A is by doc.go, and B by the comments of the methods")
}

// saysWaits reports whether a sentence about the method says that it waits, and until when.
func saysWaits(f *ast.FuncDecl) bool {
	const within = `(?:[^.]|\.\w)*\b`
	return regexp.MustCompile(`(?:^|[.:]\s+)(?:[Ii]t|` + f.Name.Name + `)\b` + within + `(?:waits|blocks|pauses)\b` + within +
		`(?:until|for|as long as)\b`).MatchString(f.Doc.Text())
}

func isCtx(p *ast.Field) bool {
	return len(p.Names) > 0 && p.Names[0].Name == "ctx" && types.ExprString(p.Type) == "context.Context"
}
