// Package worker fetches, claims and runs the jobs of a Queue, and writes their ends down. It does not
// know the Queue: Config is what the two share. Which job is next is for package dispatch; this one
// does what that says, and has the goroutines and the lock.
package worker

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/batch"
	"github.com/tickwheel/tickwheel/durable/internal/worker/dispatch"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// Worker is one Run.
type Worker struct {
	c      Config
	engine driver.Worker
	kinds  *driver.KindGate // what the engine is to hand out
	wheel  *timingwheel.TimingWheel
	ends   *batch.Batcher[*ended]

	claimNow     chan struct{} // for claimLoop: there may be something to claim
	renewNow     chan struct{} // for heartbeats: one is to be sent at once
	reloadLimits chan struct{} // for watchFlowControl: limits and pauses are to be read at once

	stop       func()          // ends Run
	ending     context.Context // ends when all handlers have returned
	background sync.WaitGroup  // jobs that are handed back meanwhile

	mu   sync.Mutex // guards all below: lock and unlock
	room *sync.Cond // of mu: jobs are gone, or handlers have returned
	jobs *dispatch.Dispatcher
	runs map[*dispatch.Job]*run // the jobs that run

	lease      lease
	renewing   int  // heartbeats that are not answered yet
	silent     bool // the lease was lost, and not renewed since
	draining   bool
	failed     error           // why Run ends by itself
	unreadable map[string]bool // schedules that were logged, since their specs cannot be read
	unwritten  Rarely          // for the log: ends that could not be written down
	unrenewed  Rarely          // the same of the lease

	lastPoll  time.Time // when Fetch has looked the last time
	blocked   int       // calls of hold that wait for room
	lastClaim time.Time // when a claim was answered
}

// newWorker returns a worker whose lease was renewed at a time.
func newWorker(c Config, e driver.Worker, kinds *driver.KindGate, renewed time.Time) *Worker {
	w := &Worker{
		c: c, engine: e, kinds: kinds,
		claimNow: make(chan struct{}, 1), renewNow: make(chan struct{}, 1), reloadLimits: make(chan struct{}, 1),
		jobs: dispatch.New(dispatch.Config{
			Kinds: kinds.All(), Limits: c.Limits, Concurrency: c.Concurrency, Lease: c.Lease, Manual: c.Manual,
		}, c.moment()),
		runs: map[*dispatch.Job]*run{}, unreadable: map[string]bool{},
		lease: newLease(c.Lease, renewed), lastPoll: renewed, lastClaim: renewed,
	}
	if w.silent = w.lease.at(time.Now()) == over; w.silent {
		notify(w.renewNow) // it took long to be made known
	}
	w.room = sync.NewCond(&w.mu)
	linger, enough := endsLinger, endsEnough
	if e, ok := e.(interface{ Linger() (time.Duration, int) }); ok {
		linger, enough = e.Linger()
	}
	if c.Manual {
		linger = 0 // nobody adds meanwhile
	}
	w.ends = batch.New(w.finish, linger, enough)
	return w
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// lock returns the time as of when it has the lock.
func (w *Worker) lock() dispatch.Moment {
	w.mu.Lock()
	return w.c.moment()
}

// unlock does what follows from the changes since lock.
func (w *Worker) unlock(now dispatch.Moment) {
	defer w.mu.Unlock()
	w.act(now)
}

// act is unlock, and keeps the lock.
func (w *Worker) act(now dispatch.Moment) {
	a := w.jobs.Next(now, w.stands(now.Local) == sound)
	for _, g := range a.Gates {
		w.kinds.Set(g.Kind, g.Open)
	}
	for _, t := range a.Timers {
		w.after(t.After, func() { w.fire(t) })
	}
	for _, j := range a.Begin {
		w.begin(j)
	}
	for _, j := range a.Bury {
		go w.bury(j)
	}
	w.giveBack(a.Dropped)
	for _, d := range a.Deferred {
		w.background.Go(func() { w.release(d.Jobs, d.After) })
	}
	if a.Claim {
		notify(w.claimNow)
	}
	if a.Renew && w.renewing == 0 {
		notify(w.renewNow)
	}
	if a.ReadLimits {
		notify(w.reloadLimits)
	}
	if a.Room {
		w.room.Broadcast()
	}
}

func (w *Worker) fire(t dispatch.Timer) {
	now := w.lock()
	defer w.unlock(now)
	w.jobs.Fire(t, now)
}

// after calls f when d has passed, at once if it is not positive; never on this
// goroutine, so that it may be called with the lock.
func (w *Worker) after(d time.Duration, f func()) {
	if _, err := w.wheel.Schedule(d, f); err != nil {
		time.AfterFunc(d, f) // a wheel of the user's, stopped or full
	}
}

// fetch has the engine hand out jobs until ctx ends, and begins anew when that fails.
func (w *Worker) fetch(ctx context.Context) {
	var said Rarely
	for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		began := time.Now()
		err := w.engine.Fetch(ctx, func(held []*driver.Delivery) { w.hold(ctx, held) })
		if ctx.Err() != nil {
			return
		}
		if ForGood(err) {
			w.mu.Lock()
			w.fail(err)
			w.mu.Unlock()
			return
		}
		if time.Since(began) > time.Minute {
			pause = 100 * time.Millisecond
		}
		if said.Now() {
			w.c.Log.Warn("durable: cannot fetch jobs; trying again", "error", err, "pause", pause)
		}
		sleep(ctx, pause)
	}
}

// hold takes what the engine hands out, and blocks while there is no room.
func (w *Worker) hold(ctx context.Context, held []*driver.Delivery) {
	defer context.AfterFunc(ctx, w.wakeRoom)()
	var back []*driver.Delivery
	for _, h := range held {
		if !w.admit(ctx, h) {
			back = append(back, h)
		}
	}
	if len(back) > 0 {
		// Not all after one time: where workers poll in step, one that leaves a job to others
		// would be handed it each time.
		w.release(back, w.c.Lease/4+rand.N(w.c.Lease/2))
	}
}

// wakeRoom wakes those who wait for room. It takes the lock, so that it cannot come
// between another's look at its condition and its wait.
func (w *Worker) wakeRoom() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.room.Broadcast()
}

// admit takes one job, or returns false if it is better off elsewhere: nobody here can
// run it, which the engine should have known, or the lease is not renewed, so that others
// must get what is running here.
func (w *Worker) admit(ctx context.Context, h *driver.Delivery) bool {
	w.mu.Lock()
	for w.jobs.Full() && ctx.Err() == nil {
		w.blocked++
		w.room.Wait()
		w.blocked--
	}
	now := w.c.moment()
	defer w.unlock(now)
	switch {
	case !w.silent && w.jobs.Has(h):
	case ctx.Err() != nil || w.silent || !w.jobs.Handles(h.Record.Kind) || !w.mayFollow(&h.Record):
		return false
	default:
		w.jobs.Add(h, now)
	}
	return true
}

// mayFollow reports whether a job may end here, for all that is known of its schedule.
func (w *Worker) mayFollow(r *driver.Record) bool {
	if !r.IsOccurrence() || w.c.Times.MayFollow(r.Occurrence) {
		return true
	}
	if !w.unreadable[r.Schedule] {
		w.unreadable[r.Schedule] = true
		w.c.Log.Warn("durable: cannot read the spec of a schedule; other workers run its jobs", "name", r.Schedule)
	}
	return false
}

// claimLoop claims what is due soon until ctx ends.
func (w *Worker) claimLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.claimNow:
		}
		for ctx.Err() == nil {
			jobs := w.claims()
			if len(jobs) == 0 {
				break
			}
			w.claim(ctx, jobs)
		}
	}
}

func (w *Worker) claims() []*dispatch.Job {
	now := w.lock()
	defer w.unlock(now)
	return w.jobs.Claims(now)
}

// claim asks the engine for jobs that are to be claimed.
func (w *Worker) claim(ctx context.Context, jobs []*dispatch.Job) {
	held := make([]*driver.Delivery, len(jobs))
	for i, j := range jobs {
		held[i] = j.Delivery
	}
	results := w.engine.Claim(ctx, held)
	now := w.lock()
	defer w.unlock(now)
	w.stands(now.Local) // under a lease that is lost the answer comes too late
	w.jobs.Answered(jobs, results, now)
	for i := range results {
		if results[i].Status != driver.RetryLater {
			w.lastClaim = now.Local
			break
		}
	}
}

// tell is called by the engine.
func (w *Worker) tell(n driver.Notice) {
	if n.FlowControl {
		notify(w.reloadLimits)
	}
	now := w.lock()
	defer w.unlock(now)
	for _, key := range n.Freed {
		w.jobs.Freed(key)
	}
	for _, ref := range n.Canceled {
		w.cancel(ref)
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
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-w.reloadLimits:
		}
	}
}

func (w *Worker) setFlowControl(f *driver.FlowControl) {
	now := w.lock()
	defer w.unlock(now)
	w.jobs.SetFlowControl(f, now)
}
