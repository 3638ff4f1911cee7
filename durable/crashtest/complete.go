package crashtest

import (
	"context"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// completion is in the context of a handler.
type completion struct{ called bool }

type completionKey struct{}

// Complete stands in for CompleteTx and CompleteSQL of package postgres. A handler that
// has called it and returns nil has committed its effect and the end of its job together:
// no crash comes between them. A handler that returns an error has rolled back both. ctx
// must be the handler's, or derived from it; Complete panics on any other. It always
// returns nil.
func Complete(ctx context.Context, _ *durable.Attempt) error {
	c, ok := ctx.Value(completionKey{}).(*completion)
	if !ok {
		panic("crashtest: Complete: the context is not that of a handler that Run has called")
	}
	c.called = true
	return nil
}

// completing calls a handler. If that has called Complete it stores the end, and reports so.
func completing(ctx context.Context, a *durable.Attempt, h durable.Handler) (completed bool, err error) {
	c := &completion{}
	if err = h(context.WithValue(ctx, completionKey{}, c), a); err != nil || !c.called {
		return false, err
	}
	return true, driver.Complete(ctx, a, func(w driver.Worker, out driver.Completion) error {
		return w.Finish(ctx, []driver.Completion{out})[0]
	})
}
