package durable

import (
	"context"

	"github.com/tickwheel/tickwheel/durable/internal/worker"
)

// Run works off jobs until ctx ends, or the Queue is closed. Then it drains: it fetches
// no more jobs, hands back at once those that have not begun, and waits until the running
// handlers have returned and their ends are stored ([WithGrace] bounds the first). Then it
// returns nil. An engine that answers nothing delays it, after the last handler has returned, by
// at most a lease ([WithLease]), or 5 seconds if that is more, and then by 3 seconds: what
// could not be stored is logged, and runs again elsewhere after the lease. Run returns nil, too, and logs why, if ctx ends before the engine has made a
// worker. An engine that does not answer, or is read-only,
// never ends Run, which logs that it waits. One that refuses to make a worker
// ends Run with its error. So does one that cannot go on, because its connection is closed
// for good ([ErrClosed]), or because a newer version of it has changed the store
// ([ErrVersion]); this error is the cause with which the contexts of the running handlers
// end. Run panics if another call is under way, or if there is no handler.
func (q *Queue) Run(ctx context.Context) error {
	q.begin()
	defer q.end()
	if !q.join() {
		return ErrClosed
	}
	defer q.wg.Done()
	c := q.config
	c.Engine, c.Clock, c.Manual, c.Times, c.Counters = q.engine, q.clock, q.manual, q.calendar, &q.counters
	c.PauseUntil, c.Ended = q.pauseUntil, q.awaits.check
	c.Handlers, c.Closed, c.Requests = q.handlers, q.closed, q.requests
	return worker.Run(ctx, c, &q.running)
}

// join makes Close wait for a call of Run, unless it has begun.
func (q *Queue) join() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed.Err() != nil {
		return false
	}
	q.wg.Add(1)
	return true
}

func (r *registry) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inRun {
		panic("durable: Run: another call of Run has not returned")
	}
	if len(r.handlers) == 0 {
		panic("durable: Run: no handler: call Handle first")
	}
	r.inRun = true
}

func (r *registry) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inRun = false
}
