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

// apart is a difference between worker and store that is not settled yet.
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
		known[i] = w.dispatcher.HasClaimed(ref) || w.returning[ref] > 0
	}
	return known
}

// returned notes that the engine has taken jobs back.
func (w *Worker) returned(held []*driver.Delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range held {
		if w.returning[h.Ref]--; w.returning[h.Ref] == 0 {
			delete(w.returning, h.Ref)
		}
	}
}

// compared takes what the engine says of a comparison. w.mu is held.
func (w *Worker) compared(n *driver.Notice) {
	if n.WentBack != "" {
		w.c.Log.Error("durable: the store went back and lacks what it had stored last; follow BACKUP.md, After a failover", "seen", n.WentBack)
	}
	if n.WentBack != "" || n.Forgotten > 0 || len(n.Lost) > 0 {
		if w.apart.since.IsZero() {
			w.apart.since = time.Now()
		}
	}
	if (n.Forgotten > 0 || len(n.Lost) > 0) && !w.apart.warned {
		w.apart.warned = true
		w.c.Log.Warn("durable: the store has not the claims that this worker has; the jobs run again", "forgotten", n.Forgotten, "lost", len(n.Lost))
	}
	w.c.Counters.Forgotten.Add(int64(n.Forgotten))
	for _, ref := range n.Lost {
		w.loseClaim(ref)
	}
	if n.Agreed {
		w.apart = apart{}
	}
}

// loseClaim ends the context of a handler whose claim the store lacks, or drops the job if it has not
// begun. w.mu is held.
func (w *Worker) loseClaim(ref driver.Ref) {
	if w.dispatcher.LoseClaim(ref) {
		return
	}
	if r := w.runs[w.dispatcher.Job(ref)]; r != nil {
		r.cancel(driver.ErrLeaseLost)
	}
}
