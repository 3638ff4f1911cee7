package crashtest

import (
	"context"
	"iter"
	"runtime"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// mayCrash is a moment of the handler that runs, if one does. If the process crashes, or has
// crashed before, mayCrash ends the goroutine: a dead process does nothing more.
func (p *process) mayCrash(where string) {
	if c := p.running.Load(); c != nil && p.w.crashes(c.a, where) {
		p.crash(c)
	}
	if p.gone.Load() {
		runtime.Goexit()
	}
}

// crash kills the process within a call. An end that was committed is stored.
func (p *process) crash(c *call) {
	if c.committed.Load() {
		_ = c.store() // the only error is that of a closed engine
	}
	p.kill()
}

// around calls f between two moments.
func (p *process) around(what string, f func()) {
	p.mayCrash("call of " + what + " in")
	f()
	p.mayCrash("return of " + what + " in")
}

// add is middleware. AddMany may store some of its jobs only: a crash in the middle leaves half.
func (p *process) add(next durable.AddFunc) durable.AddFunc {
	return func(ctx context.Context, jobs []durable.Job) (refs []durable.Ref, err error) {
		c := p.running.Load()
		if c != nil && len(jobs) > 1 && p.w.crashes(c.a, "middle of Add in") {
			_, _ = next(ctx, jobs[:len(jobs)/2])
			p.crash(c)
			runtime.Goexit()
		}
		p.around("Add", func() { refs, err = next(ctx, jobs) })
		return refs, err
	}
}

// engine is that of a process. The methods that Queue methods call, and the Queue by itself does
// not while a handler runs, are moments. Insert is not one, since it is called on another
// goroutine; add is.
type engine struct {
	driver.Engine
	p *process
}

// Manual and OnSet are for package durable; see package memory.

func (e *engine) Manual() func() time.Time {
	return e.Engine.(interface{ Manual() func() time.Time }).Manual()
}

func (e *engine) OnSet(f func(was, now time.Time)) {
	e.Engine.(interface {
		OnSet(func(was, now time.Time))
	}).OnSet(f)
}

func (e *engine) Cancel(ctx context.Context, refs []driver.Ref) (oks []bool, errs []error) {
	e.p.around("Cancel", func() { oks, errs = e.Engine.Cancel(ctx, refs) })
	return oks, errs
}

func (e *engine) Move(ctx context.Context, ref driver.Ref, at time.Time) (ok bool, err error) {
	e.p.around("Reschedule", func() { ok, err = e.Engine.Move(ctx, ref, at) })
	return ok, err
}

func (e *engine) Signal(ctx context.Context, key string, payload []byte, at time.Time) (ok bool, err error) {
	e.p.around("Signal", func() { ok, err = e.Engine.Signal(ctx, key, payload, at) })
	return ok, err
}

func (e *engine) Redrive(ctx context.Context, ref driver.Ref, at time.Time) (err error) {
	e.p.around("Redrive", func() { err = e.Engine.Redrive(ctx, ref, at) })
	return err
}

func (e *engine) Delete(ctx context.Context, ref driver.Ref) (err error) {
	e.p.around("Delete", func() { err = e.Engine.Delete(ctx, ref) })
	return err
}

func (e *engine) SetSchedule(ctx context.Context, was int64, s driver.Schedule, replace driver.Replace) (err error) {
	e.p.around("SetSchedule", func() { err = e.Engine.SetSchedule(ctx, was, s, replace) })
	return err
}

func (e *engine) SetFlowControl(ctx context.Context, was int64, r *driver.FlowControl) (err error) {
	e.p.around("SetLimit", func() { err = e.Engine.SetFlowControl(ctx, was, r) })
	return err
}

func (e *engine) CancelRunning(ctx context.Context, ref driver.Ref) (ok bool, err error) {
	e.p.around("CancelRunning", func() { ok, err = e.Engine.CancelRunning(ctx, ref) })
	return ok, err
}

// A query changes nothing, so one moment is enough.

func (e *engine) Lookup(ctx context.Context, key string) (driver.Ref, error) {
	e.p.mayCrash("call of Lookup in")
	return e.Engine.Lookup(ctx, key)
}

func (e *engine) Get(ctx context.Context, ref driver.Ref) (driver.Info, error) {
	e.p.mayCrash("call of Get in")
	return e.Engine.Get(ctx, ref)
}

func (e *engine) Scan(ctx context.Context, f driver.Filter) iter.Seq2[driver.Info, error] {
	e.p.mayCrash("call of All in")
	return e.Engine.Scan(ctx, f)
}

func (e *engine) Page(ctx context.Context, f driver.Filter, after driver.Cursor, n int) ([]driver.Info, driver.Cursor, error) {
	e.p.mayCrash("call of List in")
	return e.Engine.Page(ctx, f, after, n)
}
