package worker

import (
	"slices"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A worker holds a bounded number of jobs and bytes. Up to three quarters of that any kind
// may take. From then on a kind that has its share of the last quarter is shut, so that no
// kind, however many of its jobs are overdue, takes the room of another. A job that is on its way
// when its kind is shut is let in.
//
// A kind with a limit of its own is shut earlier: when more of its jobs are due than begin
// soon. It is opened again while there is still work for a while. A kind that is paused is
// shut until it is resumed.

// most is how many jobs the worker holds at most.
func (w *Worker) most() int { return max(maxHeld, 2*w.env.Concurrency) }

// backlog is how many jobs of a kind that has a limit may be due and not claimed.
func (l *lane) backlog() int { return 1024 + 4*l.limit }

func (l *lane) unclaimed() int { return l.claimable.len() + l.last.len() + len(l.suspects) + l.lined }

// activate notes that a lane has something in a queue, so that to look for what is next
// takes no look at all kinds. w.mu is held.
func (w *Worker) activate(l *lane) {
	if !l.active {
		l.active, w.active = true, append(w.active, l)
	}
	w.mind(l)
}

// activeLanes returns the lanes that have something in a queue, or are being claimed.
// w.mu is held.
func (w *Worker) activeLanes() []*lane {
	w.active = slices.DeleteFunc(w.active, func(l *lane) bool {
		l.active = l.unclaimed()+l.ready.len() > 0 || l.claiming != [3]int{}
		return !l.active
	})
	return w.active
}

// weigh counts a task that comes (1) or goes (-1). w.mu is held.
func (w *Worker) weigh(h *driver.Delivery, n int) {
	bytes := n * len(h.Record.Payload)
	w.bytes += bytes
	l := w.lanes[h.Record.Kind]
	l.held, l.bytes = l.held+n, l.bytes+bytes
	switch was := w.crowded; {
	case len(w.tasks) >= w.most()/4*3 || w.bytes >= maxHeldBytes/4*3:
		w.crowded = true
	case len(w.tasks) < w.most()/2 && w.bytes < maxHeldBytes/2:
		if w.crowded = false; was {
			for _, other := range w.lanes {
				w.mind(other)
			}
		}
	}
	w.mind(l)
}

// mind opens a kind, or shuts it, when it is due for that. w.mu is held.
func (w *Worker) mind(l *lane) {
	part := 1 // of each bound; half of it for one that is shut, so that it is not opened for each job
	if l.shut {
		part = 2
	}
	share := 4 * len(w.lanes) * part
	shut := l.paused || (l.limited || len(l.gates) > 0) && l.unclaimed() >= l.backlog()/part ||
		w.crowded && (l.held >= max(1, w.most()/share) || l.bytes >= max(1, maxHeldBytes/share))
	if shut != l.shut {
		l.shut = shut
		w.kinds.Set(l.kind, !shut)
	}
}
