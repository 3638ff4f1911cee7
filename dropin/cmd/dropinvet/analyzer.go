package main

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/cfg"
	"golang.org/x/tools/go/types/typeutil"
)

const module = "github.com/tickwheel/tickwheel/"

var analyzer = &analysis.Analyzer{
	Name:     "dropinvet",
	Doc:      "report timers and contexts of a timing wheel that are forgotten",
	URL:      "https://pkg.go.dev/" + module + "dropin/cmd/dropinvet",
	Requires: []*analysis.Analyzer{inspect.Analyzer, ctrlflow.Analyzer},
	Run:      run,
}

func run(pass *analysis.Pass) (any, error) {
	p := &checker{pass}
	for cursor := range pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root().Preorder(
		(*ast.FuncDecl)(nil), (*ast.FuncLit)(nil), (*ast.AssignStmt)(nil), (*ast.CommClause)(nil)) {
		switch n := cursor.Node().(type) {
		case *ast.FuncDecl:
			if n.Body != nil {
				p.function(n.Body, pass.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs).FuncDecl(n))
			}
		case *ast.FuncLit:
			p.function(n.Body, pass.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs).FuncLit(n))
		case *ast.AssignStmt:
			p.zones(n)
		case *ast.CommClause:
			if isInLoop(cursor) {
				p.after(n)
			}
		}
	}
	return nil, nil
}

type checker struct{ *analysis.Pass }

// madeBy returns the name of the function of a wheel or of dropin that a call calls, or "".
func (p *checker) madeBy(e ast.Expr) string {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return ""
	}
	f := typeutil.StaticCallee(p.TypesInfo, call)
	if f == nil || f.Pkg() == nil {
		return ""
	}
	path := f.Pkg().Path()
	if path == module+"timingwheel" || path == module+"dropin/context" || path == module+"dropin/time" && f.Name() == "NewTimer" {
		return f.Name()
	}
	return ""
}

// function looks at what a function makes and keeps in variables of its own. Functions inside it
// are looked at by themselves.
func (p *checker) function(body *ast.BlockStmt, graph *cfg.CFG) {
	ast.Inspect(body, func(n ast.Node) bool {
		if _, inner := n.(*ast.FuncLit); inner {
			return false
		}
		left, right := assignment(n)
		for i, made := range right {
			switch name := p.madeBy(made); {
			case len(left) == 2 && len(right) == 1 && p.isCancel(made):
				p.cancel(body, graph, n, left[1], name)
			case len(left) == len(right) && (name == "NewTicker" || name == "NewTimer"):
				p.timer(body, left[i], name)
			}
		}
		return true
	})
}

// assignment returns the two sides of an assignment or a declaration.
func assignment(n ast.Node) (left, right []ast.Expr) {
	switch n := n.(type) {
	case *ast.AssignStmt:
		return n.Lhs, n.Rhs
	case *ast.ValueSpec:
		for _, name := range n.Names {
			left = append(left, name)
		}
		return left, n.Values
	}
	return nil, nil
}

// isCancel reports whether the second result of a call is a function that ends a context.
func (p *checker) isCancel(call ast.Expr) bool {
	results, ok := p.TypesInfo.TypeOf(call).(*types.Tuple)
	if p.madeBy(call) == "" || !ok || results.Len() != 2 {
		return false
	}
	named, ok := types.Unalias(results.At(1).Type()).(*types.Named)
	return ok && (named.Obj().Name() == "CancelFunc" || named.Obj().Name() == "CancelCauseFunc")
}

func (p *checker) cancel(body *ast.BlockStmt, graph *cfg.CFG, made ast.Node, left ast.Expr, name string) {
	id, ok := left.(*ast.Ident)
	if !ok {
		return
	}
	v := p.local(id, body)
	switch {
	case id.Name == "_":
		p.Reportf(left.Pos(), "the cancel function of %s is dropped: call it, or the context is kept until its deadline, or without one until its parent ends", name)
	case v != nil && graph != nil && !p.isCaptured(body, made, v) && p.canReturn(graph, made, v):
		p.Reportf(left.Pos(), "the cancel function of %s is not used on all paths: call %s() on each, or the context is kept until its deadline, or without one until its parent ends", name, v.Name())
	}
}

// local returns the variable of an identifier if it belongs to the function with this body.
func (p *checker) local(id *ast.Ident, body *ast.BlockStmt) *types.Var {
	v, _ := p.TypesInfo.ObjectOf(id).(*types.Var)
	if v == nil || v.Pos() < body.Pos() || v.Pos() > body.End() {
		return nil
	}
	return v
}

// isCaptured reports whether a function that was written before a statement uses v, such as a deferred one: it may run later.
func (p *checker) isCaptured(body *ast.BlockStmt, made ast.Node, v *types.Var) (is bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if f, ok := n.(*ast.FuncLit); ok && f.Pos() < made.Pos() {
			used, _ := p.uses(f, v)
			is = is || used
		}
		return !is
	})
	return is
}

// canReturn reports whether a path leads from a statement to a return, or to another value of v, without a use of v.
func (p *checker) canReturn(graph *cfg.CFG, made ast.Node, v *types.Var) bool {
	seen := map[*cfg.Block]bool{}
	var walk func(b *cfg.Block, nodes []ast.Node) bool
	walk = func(b *cfg.Block, nodes []ast.Node) bool {
		for _, n := range nodes {
			if used, replaced := p.uses(n, v); used || replaced {
				return !used
			}
		}
		if b.Return() != nil {
			return true
		}
		for _, next := range b.Succs {
			if !seen[next] {
				seen[next] = true
				if walk(next, next.Nodes) {
					return true
				}
			}
		}
		return false
	}
	for _, b := range graph.Blocks {
		for i, n := range b.Nodes {
			if n.Pos() <= made.Pos() && made.End() <= n.End() {
				return walk(b, b.Nodes[i+1:])
			}
		}
	}
	return false
}

// uses reports whether a node uses v, and whether it gives v another value.
func (p *checker) uses(n ast.Node, v *types.Var) (used, replaced bool) {
	given := map[*ast.Ident]bool{}
	if assign, ok := n.(*ast.AssignStmt); ok {
		for _, left := range assign.Lhs {
			if id, ok := left.(*ast.Ident); ok && p.TypesInfo.Uses[id] == v {
				given[id] = true
			}
		}
	}
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		used = used || ok && p.TypesInfo.Uses[id] == v && !given[id]
		return !used
	})
	return used, len(given) > 0
}

// timer reports a Ticker or Timer that the function only receives from.
func (p *checker) timer(body *ast.BlockStmt, left ast.Expr, name string) {
	id, ok := left.(*ast.Ident)
	if !ok {
		return
	}
	v := p.local(id, body)
	if v == nil {
		return
	}
	channels := map[*ast.Ident]bool{} // the t in each t.C
	others := false
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && n.Sel.Name == "C" {
				channels[x] = true
			}
		case *ast.Ident:
			others = others || p.TypesInfo.Uses[n] == v && !channels[n]
		}
		return true
	})
	if !others {
		p.Reportf(left.Pos(), "nothing stops %s, which %s has put on a wheel: defer %[1]s.Stop()", v.Name(), name)
	}
}

// after reports a case that receives from After.
func (p *checker) after(c *ast.CommClause) {
	var from ast.Expr
	switch comm := c.Comm.(type) {
	case *ast.ExprStmt:
		from = comm.X
	case *ast.AssignStmt:
		from = comm.Rhs[0]
	}
	if receive, ok := ast.Unparen(from).(*ast.UnaryExpr); ok && p.madeBy(receive.X) == "After" {
		p.Reportf(receive.Pos(), "each round leaves a timer of After on the wheel when another case is ready: use a Timer, and Stop or Reset it")
	}
}

// isInLoop reports whether a case of a select is in a loop of its function, and is not the only one.
func isInLoop(c inspector.Cursor) bool {
	if body, ok := c.Parent().Node().(*ast.BlockStmt); !ok || len(body.List) < 2 {
		return false
	}
	for at := range c.Enclosing((*ast.ForStmt)(nil), (*ast.RangeStmt)(nil), (*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		switch at.Node().(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			return true
		}
		return false
	}
	return false
}

// zones reports assignments to the zones of dropin/time.
func (p *checker) zones(s *ast.AssignStmt) {
	for _, left := range s.Lhs {
		var id *ast.Ident
		switch left := ast.Unparen(left).(type) {
		case *ast.SelectorExpr:
			id = left.Sel
		case *ast.Ident: // of an import with a dot
			id = left
		}
		v, ok := p.TypesInfo.Uses[id].(*types.Var)
		if ok && v.Pkg() != nil && v.Pkg().Path() == module+"dropin/time" && (v.Name() == "Local" || v.Name() == "UTC") {
			p.Reportf(left.Pos(), "%s of dropin/time is a copy: assign to that of package time", v.Name())
		}
	}
}
