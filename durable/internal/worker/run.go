package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/batch"
	"github.com/tickwheel/tickwheel/durable/internal/worker/dispatch"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// Run is Run of a Queue: it makes a worker, and works off jobs until ctx or the Queue's time
// ends. The worker is at running while it is under way.
func Run(ctx context.Context, c Config, running *atomic.Pointer[Worker]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.Closed, cancel)()
	began := time.Now()
	kinds := c.kindSet()
	var w *Worker
	engineWorker, err := makeWorker(ctx, &c, driver.WorkConfig{
		Holds: func(refs []driver.Ref) []bool { return holds(running.Load(), refs) },
		Name:  NewName(c.Clock.Time(), c.Label), Kinds: kinds, Lease: c.Lease, Ahead: c.Ahead, Retention: c.Retention, Polled: func() { w.polls.ended(time.Now()) },
		Revision: func(revision int64) {
			if w := running.Load(); w != nil {
				w.sawRevision(revision)
			}
		},
		Time:    c.Clock.Tell,
		Trouble: func(err error) { w.polls.troubled(c.Log, err) },
		Notify: func(n driver.Notice) {
			if w := running.Load(); w != nil {
				w.onNotice(n)
			}
		},
	})
	if err != nil && ctx.Err() != nil && !ForGood(err) {
		c.Log.Warn("durable: Run ended before the engine made a worker", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("durable: Run: %w", err)
	}
	w = newWorker(c, engineWorker, kinds, began)
	w.stop = cancel
	running.Store(w)
	defer running.Store(nil)
	w.work(ctx)
	if w.failed != nil {
		return fmt.Errorf("durable: Run: %w", w.failed)
	}
	return nil
}

// silentWork is how long an engine may take to make a worker before that is said, and between two such lines.
const silentWork = 10 * time.Second

// makeWorker has the engine make a worker. It waits where the store is read-only, or where there is no answer:
// a process that starts during a failover goes on after it. It says so, since nothing else does.
func makeWorker(ctx context.Context, c *Config, wc driver.WorkConfig) (driver.Worker, error) {
	began := time.Now()
	c.Counters.Starting.Store(&began)
	defer c.Counters.Starting.Store(nil)
	var said Rarely
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		w, err := workAloud(ctx, c, wc, began)
		if !errors.Is(err, driver.ErrReadOnly) || ctx.Err() != nil {
			return w, err
		}
		if said.Now() {
			logNotFetched(c, err, pause)
		}
		sleep(ctx, pause)
	}
}

// workAloud calls Work, and says every so often that it has not returned.
func workAloud(ctx context.Context, c *Config, wc driver.WorkConfig, began time.Time) (driver.Worker, error) {
	var saying sync.WaitGroup
	defer saying.Wait()
	returned, done := context.WithCancel(ctx)
	defer done()
	saying.Go(func() {
		for sleep(returned, silentWork); returned.Err() == nil; sleep(returned, silentWork) {
			logNotFetched(c, fmt.Errorf("the engine has made no worker for %v", time.Since(began).Round(time.Millisecond)), silentWork)
		}
	})
	return c.Engine.Work(ctx, wc)
}

func logNotFetched(c *Config, err error, pause time.Duration) {
	c.Log.Warn("durable: cannot fetch jobs; trying again", "error", err, "pause", pause)
}

// newWorker returns a worker whose lease was renewed at a time.
func newWorker(c Config, e driver.Worker, kinds *driver.KindSet, renewed time.Time) *Worker {
	w := &Worker{
		c: c, kinds: kinds, polls: polls{last: renewed},
		claimNow: make(chan struct{}, 1), renewNow: make(chan struct{}, 1), reloadLimits: make(chan struct{}, 1),
		dispatcher: dispatch.New(dispatch.Config{
			Kinds: kinds.All(), Limits: c.Limits, Concurrency: c.Concurrency, Lease: c.Lease, Manual: c.Manual,
		}, c.moment()),
		link: link{engine: e, requests: c.Requests, returning: map[driver.Ref]int{}},
		runs: handlers{}, unreadable: unreadable{}, lease: newLease(c.Lease, renewed), lastClaim: renewed,
	}
	w.link.c = &w.c
	if w.silent = w.lease.at(time.Now()) == over; w.silent {
		notify(w.renewNow) // it took long to be made known
	}
	w.changed = sync.NewCond(&w.mu)
	linger := endsLinger
	if c.Manual {
		linger = 0 // nobody adds meanwhile
	}
	w.ends.plain, w.ends.retake = batch.New(w.finish, linger, endsEnough), batch.New(w.finish, linger, endsEnough)
	w.cooldowns = batch.New(w.storeCooldowns, 0, 1)
	return w
}

// work starts one goroutine for each part of a worker.
func (w *Worker) work(ctx context.Context) {
	w.wheel = timingwheel.New(timingwheel.WithTick(100*time.Microsecond), timingwheel.WithPreciseWakeups(),
		timingwheel.WithExecutor(timingwheel.Inline()))
	defer w.wheel.Stop()
	ending, end := context.WithCancel(context.Background())
	defer end()
	w.link.drained = ending
	var hangUp context.CancelFunc
	w.link.requests, hangUp = context.WithCancel(w.c.Requests)
	defer hangUp()
	var fetches, claims, watches sync.WaitGroup
	watches.Go(func() { w.heartbeats(ending) })
	watches.Go(func() { w.c.watchUnhandled(ending) })
	watches.Go(func() { w.c.watchBacklog(ending) })
	watches.Go(func() { w.watchFlowControl(ending) })
	claims.Go(func() { w.claimLoop(ctx) })
	fetches.Go(func() { w.fetch(ctx) })

	<-ctx.Done()
	defer w.drain(hangUp)()
	fetches.Wait()
	claims.Wait()
	w.cooldowns.Close()
	w.ends.plain.Close()
	w.ends.retake.Close()
	end()
	watches.Wait()
	w.link.background.Wait()
	bye, cancel := context.WithTimeout(w.c.Requests, leaveTimeout)
	defer cancel()
	if err := w.link.engine.Close(bye); err != nil {
		w.c.Log.Warn("durable: cannot close the worker; others wait for the end of its lease", "error", err)
	}
}

// leaveTimeout is how long Close of the engine's worker may take.
const leaveTimeout = 2 * time.Second

// patience is how long the engine may be silent after the last handler has returned: a lease, since then the
// jobs are not this worker's any more, but at least as long as a request may take.
func (c *Config) patience() time.Duration { return max(c.Lease, requestTimeout) }

// drain hands back what has not begun, and waits until the handlers have returned and their ends are
// stored. From the last return on it waits for no longer than patience; then it calls hangUp, which ends
// all requests that are under way. Close of the Queue makes it give up sooner. The requests that drain leaves
// under way have the rest of that time: stop ends the wait for it.
func (w *Worker) drain(hangUp func()) (stop func() bool) {
	now := w.lock()
	w.draining = true
	w.dispatcher.Drain()
	w.unlockAndAct(now) // handed back more than once: handlers may run for long, and the lease is renewed meanwhile
	if w.c.Grace > 0 {
		defer time.AfterFunc(w.c.Grace, w.cutOff).Stop()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.dispatcher.Counts().Running > w.cooling {
		w.changed.Wait()
	}
	defer context.AfterFunc(w.link.requests, w.wake)()
	stop = time.AfterFunc(w.c.patience(), hangUp).Stop
	for w.dispatcher.Counts().Running > 0 { // a cooldown is given up with the requests
		w.changed.Wait()
	}
	for w.dispatcher.Counts().Held > 0 && w.link.requests.Err() == nil && !ForGood(w.failed) { // then no end can be written down
		w.changed.Wait()
	}
	if n := w.dispatcher.Counts().Held; n > 0 {
		w.c.Log.Error("durable: cannot store the ends of attempts; the jobs will run again", "attempts", n)
	}
	return stop
}
