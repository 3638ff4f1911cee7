package core

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A shard does not know the driver: neither its methods nor the declarations that they use, directly or not, name it. An
// interface does not count as the types that implement it. The same holds for each type of the order and those after
// it. The files have no such order: one has hub and Engine, and several have methods of both shard and Engine.
func TestShardDoesNotKnowTheDriver(t *testing.T) {
	_, files, uses := usesOf(t, "timingwheel/internal/engine")
	arrows := map[string][]string{}
	for id, o := range uses {
		from := declaration(files, id.Pos())
		arrows[from] = append(arrows[from], declaration(files, o.Pos()))
	}
	order := []string{"wheel", "shard", "driver", "Engine"}
	for i, name := range order {
		by := map[string]string{name: ""} // each declaration that it knows, by which
		for next := []string{name}; len(next) > 0; next = next[1:] {
			for _, to := range arrows[next[0]] {
				if _, seen := by[to]; !seen {
					by[to] = next[0]
					next = append(next, to)
				}
			}
		}
		for _, above := range order[i+1:] {
			require.Empty(t, by[above], "%s knows %s by this", name, above)
		}
		if i > 0 {
			require.Contains(t, by, order[i-1], "the test finds no uses any more")
		}
	}
}

// declaration returns the name of the declaration around a place, for a method that of its type.
func declaration(files []*ast.File, place token.Pos) (name string) {
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if n == nil || place < n.Pos() || place >= n.End() {
				return false
			}
			switch n := n.(type) {
			case *ast.FuncDecl:
				if name = n.Name.Name; n.Recv != nil {
					name = strings.TrimPrefix(types.ExprString(n.Recv.List[0].Type), "*")
				}
				return false
			case *ast.TypeSpec:
				name = n.Name.Name
				return false
			case *ast.ValueSpec:
				name = n.Names[0].Name
				return false
			}
			return true
		})
	}
	return name
}
