package durable

import (
	"context"
	"time"
)

// watchUnhandled asks the engine once a lease for kinds that nobody can run, until ctx
// ends: their jobs wait without a word otherwise, and make no other late.
func (w *worker) watchUnhandled(ctx context.Context) {
	defer w.q.stats.unhandled.Store(nil)
	known := map[string]bool{}
	for sleep(ctx, w.q.lease); ctx.Err() == nil; sleep(ctx, w.q.lease) {
		try, cancel := context.WithTimeout(ctx, w.q.lease)
		found, err := w.q.engine.Unhandled(try)
		cancel()
		if err != nil {
			continue // what is wrong with the engine others say; the next look tells
		}
		w.q.stats.unhandled.Store(&found)
		now, before := w.q.now(), known
		known = map[string]bool{}
		for _, u := range found {
			if known[u.Kind] = true; !before[u.Kind] {
				w.q.log.Warn("durable: no worker has a handler for jobs of a kind that are due", "kind", u.Kind,
					"ref", u.Oldest, "overdue", now.Sub(u.Due).Round(time.Millisecond))
			}
		}
	}
}
