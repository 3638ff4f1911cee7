package worker

import (
	"context"
	"time"
)

// watchUnhandled asks the engine once a lease for kinds that nobody can run, until ctx
// ends: their jobs wait without a word otherwise, and make no other late.
func (w *Worker) watchUnhandled(ctx context.Context) {
	defer w.c.Counters.Unhandled.Store(nil)
	known := map[string]bool{}
	for sleep(ctx, w.c.Lease); ctx.Err() == nil; sleep(ctx, w.c.Lease) {
		try, cancel := context.WithTimeout(ctx, w.c.Lease)
		found, err := w.c.Engine.Unhandled(try)
		cancel()
		if err != nil {
			continue // what is wrong with the engine others say; the next look tells
		}
		w.c.Counters.Unhandled.Store(&found)
		now, before := w.c.now(), known
		known = map[string]bool{}
		for _, u := range found {
			if known[u.Kind] = true; !before[u.Kind] {
				w.c.Log.Warn("durable: due jobs wait, since no worker handles their kind", "kind", u.Kind,
					"ref", u.Oldest, "overdue", now.Sub(u.Due).Round(time.Millisecond))
			}
		}
	}
}
