package durable

import (
	"context"
	"time"
)

// Unhandled returns the kinds of which a job is due and no worker has a handler, in whatever
// process, the longest due first; not all of them if they are many. It asks the engine, which
// may be some seconds behind, and may look at each kind that there is. A process in which Run
// is under way has it in its [Stats].
func (q *Queue) Unhandled(ctx context.Context) ([]Unhandled, error) {
	if q.env.closed.Err() != nil {
		return nil, ErrClosed
	}
	return q.env.engine.Unhandled(ctx)
}

// watchUnhandled asks the engine once a lease for kinds that nobody can run, until ctx
// ends: their jobs wait without a word otherwise, and make no other late.
func (w *worker) watchUnhandled(ctx context.Context) {
	defer w.env.stats.unhandled.Store(nil)
	known := map[string]bool{}
	for sleep(ctx, w.env.lease); ctx.Err() == nil; sleep(ctx, w.env.lease) {
		try, cancel := context.WithTimeout(ctx, w.env.lease)
		found, err := w.env.engine.Unhandled(try)
		cancel()
		if err != nil {
			continue // what is wrong with the engine others say; the next look tells
		}
		w.env.stats.unhandled.Store(&found)
		now, before := w.env.now(), known
		known = map[string]bool{}
		for _, u := range found {
			if known[u.Kind] = true; !before[u.Kind] {
				w.env.log.Warn("durable: no worker has a handler for jobs of a kind that are due", "kind", u.Kind,
					"ref", u.Oldest, "overdue", now.Sub(u.Due).Round(time.Millisecond))
			}
		}
	}
}
