package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// backoff says how long to wait before the next attempt.
type backoff struct {
	base, cap time.Duration
	random    func() float64 // from 0 up to 1; called with a lock held
}

// after returns the wait after this many failures. It is base, doubled with each failure
// after the first, but at most cap; of that, the upper half is random. Without the random
// part, calls that have failed together would come back together, and fail again.
func (b backoff) after(failures int) time.Duration {
	most := b.cap
	if doublings := failures - 1; b.base <= b.cap>>doublings { // so that nothing overflows
		most = b.base << doublings
	}
	half := most / 2
	return half + time.Duration(b.random()*float64(most-half))
}

// result is what became of the calls.
type result struct {
	succeeded, gaveUp, canceled int
	calls                       []int           // by the number of their attempts
	late                        []time.Duration // of each retry, than planned
}

// policy says how calls are made.
type policy struct {
	inFlight int           // attempts at a time
	attempts int           // for each call
	timeout  time.Duration // of each attempt
	backoff  backoff
}

// retrier makes calls, and repeats those that fail. A call is in one place at a time:
//
//	queue ──► a worker makes an attempt ──► ended
//	  ▲                                │
//	  └── on the wheel, until due ◄────┘ failed
//
// There are as many workers as there is work for, at most inFlight. A worker that finds
// the queue empty ends. So a call that waits for its next attempt costs an entry on the
// wheel, and no goroutine.
type retrier struct {
	ctx    context.Context // its end cancels all calls
	wheel  *timingwheel.TimingWheel
	policy policy
	notice func() bool // ends the notice of ctx's end
	open   sync.WaitGroup

	mu      sync.Mutex // guards what follows; lock order: mu, those of the wheel
	queue   []*call
	waiting map[*call]bool // on the wheel
	workers int
	result  result
}

type call struct {
	attempt  func(ctx context.Context) error
	attempts int
	timeout  timingwheel.Timeout // of the wait on the wheel
	planned  time.Time           // of the next attempt; zero for the first
}

func newRetrier(ctx context.Context, wheel *timingwheel.TimingWheel, p policy) *retrier {
	r := &retrier{ctx: ctx, wheel: wheel, policy: p, waiting: map[*call]bool{}}
	r.result.calls = make([]int, p.attempts+1)
	r.notice = context.AfterFunc(ctx, r.cancel)
	return r
}

// call makes a call. Its first attempt is due now. The context of an attempt ends with
// its timeout.
func (r *retrier) call(attempt func(ctx context.Context) error) {
	r.open.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enqueue(&call{attempt: attempt})
}

// wait waits until all calls have ended.
func (r *retrier) wait() *result {
	r.open.Wait()
	r.notice()
	r.mu.Lock()
	defer r.mu.Unlock()
	return &r.result
}

// due is what the wheel calls. It must not hold up the executor.
func (r *retrier) due(c *call) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.waiting[c] {
		return // canceled, a moment after the wheel had let it go
	}
	delete(r.waiting, c)
	r.result.late = append(r.result.late, now.Sub(c.planned))
	r.enqueue(c)
}

// cancel ends all calls that are not in an attempt. The others end when their attempt ends:
// its context has ended too.
func (r *retrier) cancel() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.waiting {
		c.timeout.Cancel()
		r.end(c, &r.result.canceled)
	}
	clear(r.waiting)
	r.dropQueue()
}

// work is the life of a worker.
func (r *retrier) work() {
	for c := r.next(); c != nil; c = r.next() {
		ctx, cancel := r.wheel.WithTimeout(r.ctx, r.policy.timeout)
		err := c.attempt(ctx)
		cancel()
		r.settle(c, err)
	}
}

// next takes a call off the queue. It returns nil to tell a worker to end.
func (r *retrier) next() *call {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		r.dropQueue() // cancel is on its way; until then nothing is attempted in vain
	}
	if len(r.queue) == 0 {
		r.workers--
		return nil
	}
	c := r.queue[0]
	r.queue = r.queue[1:]
	c.attempts++
	return c
}

// settle says what becomes of a call after an attempt.
func (r *retrier) settle(c *call, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.end(c, &r.result.succeeded)
	case r.ctx.Err() != nil:
		r.end(c, &r.result.canceled)
	case c.attempts == r.policy.attempts:
		r.end(c, &r.result.gaveUp)
	default:
		r.retry(c)
	}
}

// The caller of the methods that follow holds mu. If ctx ends while they run, cancel
// waits for mu, and then finds what they have put on the wheel or into the queue.

// retry puts the call on the wheel until its next attempt.
func (r *retrier) retry(c *call) {
	wait := r.policy.backoff.after(c.attempts)
	c.planned = time.Now().Add(wait)
	timeout, err := r.wheel.Schedule(wait, func() { r.due(c) })
	if errors.Is(err, timingwheel.ErrStopped) {
		r.end(c, &r.result.canceled)
		return
	}
	c.timeout = timeout
	r.waiting[c] = true
}

// enqueue has the next attempt made as soon as a worker is free.
func (r *retrier) enqueue(c *call) {
	if r.ctx.Err() != nil {
		r.end(c, &r.result.canceled)
		return
	}
	r.queue = append(r.queue, c)
	if r.workers < r.policy.inFlight {
		r.workers++
		go r.work()
	}
}

func (r *retrier) dropQueue() {
	for _, c := range r.queue {
		r.end(c, &r.result.canceled)
	}
	r.queue = nil
}

// end ends the call, and counts it in the given number.
func (r *retrier) end(c *call, number *int) {
	*number++
	r.result.calls[c.attempts]++
	r.open.Done()
}
