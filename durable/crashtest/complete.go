package crashtest

import (
	"context"
	"sync/atomic"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// call is one call of a handler. It is in the handler's context.
type call struct {
	p         *process
	a         *durable.Attempt
	ctx       context.Context // the handler's
	completed atomic.Bool     // Complete was called
	committed atomic.Bool     // and so was Commit, or the handler has returned nil
}

type callKey struct{}

// callOf returns the call that a context belongs to. It panics if there is none.
func callOf(ctx context.Context, what string) *call {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		panic("crashtest: " + what + ": the context is not that of a handler that Run has called")
	}
	return c
}

// Complete stands in for CompleteTx and CompleteSQL of package postgres. The end of the job is
// stored with [Commit], or without it when the handler returns nil: the handler then has
// committed its effect and the end of its job together, and no crash comes between them. A
// handler that returns an error without Commit has rolled back both. ctx must be the handler's,
// or derived from it; Complete panics on any other. It always returns nil.
//
// One crash is right before Complete. It finds an effect outside the transaction that comes
// first, such as a mail. Between Complete and the commit, crashes are at Commit, Queue calls and
// each [Point].
func Complete(ctx context.Context, _ *durable.Attempt) error {
	c := callOf(ctx, "Complete")
	c.p.mayCrash("call of Complete in")
	c.completed.Store(true)
	return nil
}

// Commit stands in for the commit of a handler's transaction. It calls apply, which makes the
// effects of the transaction visible; nil means none. If [Complete] was called, a later crash
// leaves a job that has ended. One crash is right before Commit, and one right after it. They
// find a mail that is sent beside the transaction, before or after its commit. Commit panics on
// a context that is not a handler's.
//
// Call it in the Commit method of a transaction of the scenario.
func Commit(ctx context.Context, apply func()) {
	c := callOf(ctx, "Commit")
	c.p.mayCrash("call of Commit in")
	if apply != nil {
		apply()
	}
	c.committed.Store(c.completed.Load())
	c.p.mayCrash("return of Commit in")
}

// Point names a place at which the process may crash, such as between two effects. A handler
// calls it, or a function that the handler calls. A fake service is a good place: one that
// calls Point before and after each of its effects does so for all handlers.
//
// A crash at a Point ends the handler's goroutine, so Point does not return. Names need not be
// unique, and may be empty. On a context that is not that of a handler that [Run] has called,
// Point does nothing.
func Point(ctx context.Context, name string) {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.p.mayCrash("point " + name + " in")
	}
}

// do calls a handler. The end that it has committed is stored when it returns, since the scenario may go on then.
func (c *call) do(h durable.Handler) (err error) {
	defer func() { // also after a panic
		if c.committed.Load() && !c.p.gone.Load() {
			err = c.store()
		}
	}()
	err = h(context.WithValue(c.ctx, callKey{}, c), c.a)
	if err == nil && c.completed.Load() {
		c.committed.Store(true)
	}
	return err
}

// store stores the end of the job.
func (c *call) store() error {
	return driver.Complete(c.ctx, c.a, func(w driver.Worker, out driver.Completion) error {
		return w.Finish(c.ctx, []driver.Completion{out})[0]
	})
}
