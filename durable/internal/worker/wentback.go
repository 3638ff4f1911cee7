package worker

import (
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A store that went back has claims again that this worker has ended, and lacks others that it has.
// The engine compares them with each heartbeat; here is what the worker knows, and what follows.
//
// A claim is known from before it is sent until its end or its release is stored. So a claim that
// the store had, and that is unknown after it was read, is not on its way.

// apart is a difference between worker and store that is not settled yet. Worker.mu guards it. It drops no job.
type apart struct {
	since  time.Time // zero: they agree
	warned bool      // of forgotten or lost claims
}

// holds answers for the engine which claims a worker may have. Before there is a worker there is none.
func holds(w *Worker, refs []driver.Ref) []bool {
	known := make([]bool, len(refs))
	if w == nil {
		return known
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, ref := range refs {
		known[i] = w.dispatcher.HasClaimed(ref) || w.link.isReturning(ref)
	}
	return known
}

// compared takes the result of a comparison from a notice of the engine.
func (a *apart) compared(c *Config, n *driver.Notice) {
	if n.WentBack != "" {
		c.Log.Error("durable: the store went back and lacks what it had stored last; follow BACKUP.md, After a failover", "seen", n.WentBack)
	}
	if n.WentBack != "" || n.Forgotten > 0 || len(n.Lost) > 0 {
		if a.since.IsZero() {
			a.since = time.Now()
		}
	}
	if (n.Forgotten > 0 || len(n.Lost) > 0) && !a.warned {
		a.warned = true
		c.Log.Warn("durable: the store has not the claims that this worker has; the jobs run again", "forgotten", n.Forgotten, "lost", len(n.Lost))
	}
	c.Counters.Forgotten.Add(int64(n.Forgotten))
	if n.Agreed {
		*a = apart{}
	}
}
