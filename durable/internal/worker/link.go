package worker

import (
	"context"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// link is the way of a worker to the engine. A job that is handed back is in returning from before that until the
// engine has taken it, or Run ends: nobody else gets a job that this worker may have claimed while it lives. link
// knows no queue of jobs and runs nothing. Worker.mu may be held where mu is locked, never the other way round.
type link struct {
	c          *Config
	engine     driver.Worker
	drained    context.Context // ends when all handlers have returned
	requests   context.Context // of requests that Run waits for; ends with patience after the last handler has returned
	background sync.WaitGroup  // requests that Run waits for, too

	mu        sync.Mutex         // guards returning
	returning map[driver.Ref]int // jobs on their way back to the engine, and how often
}

// isReturning reports whether a job is on its way back.
func (l *link) isReturning(ref driver.Ref) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.returning[ref] > 0
}

// note counts jobs that are on their way back (1), or that the engine has taken (-1).
func (l *link) note(held []*driver.Delivery, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range held {
		if l.returning[h.Ref] += n; l.returning[h.Ref] == 0 {
			delete(l.returning, h.Ref)
		}
	}
}

// giveBack hands jobs back until the engine has taken them, or Run ends.
func (l *link) giveBack(held []*driver.Delivery) {
	l.note(held, 1)
	l.background.Go(func() {
		for pause := 100 * time.Millisecond; l.release(held, 0) != nil; pause = min(2*pause, 5*time.Second) {
			if sleep(l.drained, pause); l.drained.Err() != nil {
				return
			}
		}
		l.note(held, -1)
	})
}

// requestTimeout is how long a request to hand back jobs may take.
const requestTimeout = 5 * time.Second

func (l *link) release(held []*driver.Delivery, after time.Duration) error {
	ctx, cancel := context.WithTimeout(l.requests, requestTimeout)
	defer cancel()
	err := l.engine.Release(ctx, held, after)
	if err != nil {
		l.c.Log.Warn("durable: cannot hand back jobs; others get them after the lease", "error", err)
	}
	return err
}
