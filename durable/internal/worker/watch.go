package worker

import (
	"context"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// idleFactor is the pause after a reading of the backlog, in multiples of its time. It is no longer than
// longestPause, so that the alert for an unknown backlog, of 15 minutes, waits for two readings.
const (
	idleFactor   = 50
	longestPause = 5 * time.Minute
)

// watchBacklog reads the backlog until ctx ends: once a lease, and less often where that takes long. The pause goes by
// the shorter of the last two readings: so one answer that comes late, as while a server starts again, delays nothing.
func (c *Config) watchBacklog(ctx context.Context) {
	defer c.Counters.Backlog.Store(nil)
	for before := time.Duration(0); ctx.Err() == nil; {
		began := time.Now()
		try, cancel := context.WithTimeout(ctx, max(c.Lease, time.Minute))
		b, err := c.Engine.Backlog(try)
		cancel()
		if err == nil {
			for i := range b.Kinds {
				// The engine may not know it: the heartbeat is late, or is read from a server that is behind.
				b.Kinds[i].Handled = b.Kinds[i].Handled || c.Handlers[b.Kinds[i].Kind] != nil
			}
			c.Counters.Backlog.Store(&backlogAt{b, time.Now()})
		}
		took := time.Since(began)
		sleep(ctx, max(c.Lease, min(idleFactor*min(took, before), longestPause)))
		before = took
	}
}

// watchUnhandled asks the engine once a lease for kinds that nobody can run, until ctx
// ends: their jobs wait without a word otherwise, and make no other late.
func (c *Config) watchUnhandled(ctx context.Context) {
	defer c.Counters.Unhandled.Store(nil)
	known := map[string]bool{}
	for sleep(ctx, c.Lease); ctx.Err() == nil; sleep(ctx, c.Lease) {
		try, cancel := context.WithTimeout(ctx, c.Lease)
		found, err := c.Engine.Unhandled(try)
		cancel()
		if err != nil {
			continue // what is wrong with the engine others say; the next look tells
		}
		found = slices.DeleteFunc(found, func(u driver.Unhandled) bool { return c.Handlers[u.Kind] != nil })
		c.Counters.Unhandled.Store(&found)
		now, before := c.Clock.Time(), known
		known = map[string]bool{}
		for _, u := range found {
			if known[u.Kind] = true; !before[u.Kind] {
				c.Log.Warn("durable: due jobs wait, since no worker handles their kind", "kind", u.Kind,
					"ref", u.Oldest, "overdue", now.Sub(u.Due).Round(time.Millisecond))
			}
		}
	}
}

// watchFlowControl reads the limits and pauses until ctx ends.
func (w *Worker) watchFlowControl(ctx context.Context) {
	t := time.NewTicker(driver.RetryInterval)
	defer t.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, max(driver.RetryInterval, w.c.Lease/4))
		f, err := w.c.Engine.FlowControl(try)
		cancel()
		if err == nil {
			w.setFlowControl(f)
			w.polls.read(f.Revision())
		}
		for wait := true; wait; {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				fresh := w.polls.flowIsFresh(time.Now())
				wait = fresh > 0
				t.Reset(max(fresh, driver.RetryInterval))
			case <-w.reloadLimits:
				wait = false
			}
		}
	}
}

// sawRevision is called by the engine, with a revision that a poll has read.
func (w *Worker) sawRevision(revision int64) {
	if w.polls.saw(revision, time.Now()) {
		notify(w.reloadLimits)
	}
}

func (w *Worker) setFlowControl(f *driver.FlowControl) {
	now := w.lock()
	defer w.unlockAndAct(now)
	w.dispatcher.SetFlowControl(f, now)
}

// onNotice is called by the engine.
func (w *Worker) onNotice(n driver.Notice) {
	if n.FlowControl {
		notify(w.reloadLimits)
	}
	if n.Deaf {
		w.c.Log.Warn("durable: announcements of other processes do not arrive; polls find their jobs")
	}
	if n.Hears {
		w.c.Log.Warn("durable: announcements of other processes arrive again")
	}
	now := w.lock()
	defer w.unlockAndAct(now)
	for _, key := range n.Freed {
		w.dispatcher.Freed(key)
	}
	for _, ref := range n.Canceled {
		w.cancel(ref)
	}
	w.apart.compared(&w.c, &n)
	for _, ref := range n.Lost {
		if w.dispatcher.LoseClaim(ref) {
			continue
		}
		if r := w.runs[w.dispatcher.Job(ref)]; r != nil {
			r.cancel(driver.ErrLeaseLost)
		}
	}
}
