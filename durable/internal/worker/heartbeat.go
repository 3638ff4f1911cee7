package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// heartbeats renews the lease until ctx ends. It does not wait for an answer before it sends the
// next one: an answer may be lost, and one that takes longer than a third of a lease counts as
// well.
func (w *Worker) heartbeats(ctx context.Context) {
	t := time.NewTicker(w.c.Lease / 3)
	defer t.Stop()
	var sent sync.WaitGroup
	defer sent.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-w.renewNow:
		}
		now := w.lock() // before the call, so that the engine's lease ends no earlier
		w.renewing++
		w.runs.logStuck(&w.c, now.Local)
		w.unlockAndAct(now)
		sent.Go(func() { w.renew(ctx, now.Local) })
	}
}

// renew sends a heartbeat, at the time began.
func (w *Worker) renew(ctx context.Context, began time.Time) {
	try, cancel := context.WithTimeout(ctx, w.c.Lease)
	defer cancel()
	err := w.link.engine.Heartbeat(try)
	now := w.lock()
	defer w.unlockAndAct(now)
	w.renewing--
	switch {
	case err == nil || errors.Is(err, driver.ErrLeaseLost):
		if err != nil && !w.silent {
			w.lose(now.Local)
		}
		if !began.Before(w.lease.renewed) {
			w.lease.renew(began)
		}
		if w.lease.at(now.Local) != over {
			w.silent = false
		}
	case ctx.Err() != nil:
	case ForGood(err):
		w.fail(err)
	case w.unrenewed.Now():
		w.c.Log.Warn("durable: cannot renew the lease", "error", err, "silent", now.Local.Sub(w.lease.renewed))
	}
}
