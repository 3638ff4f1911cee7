// Package worker fetches, claims and runs the jobs of a Queue, and writes their ends down. It does not
// know the Queue: Env is what the two share.
package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/batch"
	"github.com/tickwheel/tickwheel/timingwheel"
)

const (
	maxHeld      = 1 << 16  // jobs that a worker holds, unless its concurrency is higher still
	maxHeldBytes = 64 << 20 // of their payloads: see room.go

	// minUnwritten is how many ends may wait to be written down however few handlers may
	// run, so that a commit is for many.
	minUnwritten = 64

	maxClaims = batch.Max // in one call

	// endsLinger is how long the end of an attempt waits for others. Its price: a job that
	// has ended may run again for as much longer, if the process is killed.
	endsLinger = 5 * time.Millisecond

	minClaimAhead = 50 * time.Millisecond
	maxClaimAhead = 300 * time.Millisecond
)

// phase is how far a task has come. It only grows, but for a claim that is put off.
type phase int

const (
	fetched   phase = iota // waits on the wheel for its time to be claimed
	waiting                // in its lane's queue for a place, to be claimed exactly: begin.go; or in its line: flow.go
	claimable              // in a queue for the claim
	claiming               // the engine is asked
	claimed                // waits on the wheel for its time
	ready                  // in its lane's queue for a free place
	running
	ending // its end is being written down
)

// task is a job that this worker holds.
type task struct {
	held     *driver.Delivery
	phase    phase
	crashes  int  // more than 0: a suspect
	reserved bool // it has a place, and does not run yet
	counted  bool // in claiming of its lane
	attempt  int
	token    time.Time               // before which it must not begin; zero: it needs none
	began    time.Time               // by the engine's clock
	cancel   context.CancelCauseFunc // nil: it does not run
	canceled bool                    // by CancelRunning
	failed   bool                    // and its handler has returned an error
	line     *line                   // where it waits for a limit
	gates    []*gate                 // those that it has passed for its claim
	served   int                     // when its line had had a turn before that
	asking   bool                    // it is counted as asking there
	next     *driver.Delivery        // a newer version, to be admitted when this one is forgotten

	ownEnd    *ownEnd            // what its handler may do
	completed *driver.Completion // and has done, when it has returned: complete.go
}

// lane is what a kind has for itself: its limit, and its queues. Kinds without a limit of their
// own share queues, so that the choice of the next job does not grow with the number of kinds.
type lane struct {
	kind      string
	queues    *lane // whose claimable, ready, last, suspects, claiming and running count: its own, or the shared
	held      int   // tasks
	bytes     int   // of their payloads
	shut      bool  // the engine is to hand out no more: room.go
	active    bool  // it is in worker.active
	limit     int
	limited   bool // by WithKindConcurrency
	running   int  // and places that are reserved
	claimable classes
	ready     classes
	claiming  [3]int  // those of which a claim is under way, but for those with a place; by class
	last      classes // of those that wait: on their last attempt
	suspects  []*task // of those that wait, in the order of bySuspicion

	gates  []*gate          // of the limits for all of the kind, not PerLane
	paused bool             // all of it
	lines  map[string]*line // by Job.Lane; of those in which something waits
	turns  []*line          // those of them that are not parked, in the order of their turns
	lined  int              // tasks in lines
	served map[string]int   // of lanes: when each had its last turn
}

// Worker is one Run. A task is in the map from when the engine hands it out until its end
// is written down, it is gone, or it was handed back; the phase says where else it is.
type Worker struct {
	env    *Env
	engine driver.Worker
	kinds  *driver.KindGate // what the engine is to hand out
	wheel  *timingwheel.TimingWheel
	ends   *batch.Batcher[*ended]
	wake   chan struct{}   // for claimLoop: there may be something to claim
	doubt  chan struct{}   // for beat: one is to be asked at once
	asks   chan struct{}   // for watchRules: the rules are to be read at once
	stop   func()          // ends Run
	ending context.Context // ends when all handlers have returned
	side   sync.WaitGroup  // what is handed back meanwhile

	mu       sync.Mutex // guards all below, and the fields of tasks but held
	room     *sync.Cond
	tasks    map[driver.Ref]*task
	bytes    int
	lanes    map[string]*lane
	shared   *lane   // the queues of all kinds without a limit of their own
	active   []*lane // those that have something in a queue, and maybe others
	crowded  bool    // room.go
	counts   [ending + 1]int
	reserved int     // places of tasks that do not run yet
	exact    []*task // which these are; for claimLoop
	made     time.Time
	rounds   map[time.Duration][]*task // by their time since made: rounds.go
	trial    []*task                   // the suspects that few may be of
	begun    int                       // how often one was chosen to begin; for turn

	lastPolled time.Time           // when Fetch has looked the last time
	full       int                 // calls of hold that wait for room
	lastClaim  time.Time           // when a claim was answered
	rules      *driver.FlowControl // flow.go
	gates      map[driver.LimitKey]*gate
	back       map[time.Duration][]*driver.Delivery // what is to be handed back soon, by for how long

	claimSince time.Time       // when the claim was asked that is under way; zero: none
	looking    bool            // lookAgain
	unread     map[string]bool // schedules that were logged, since their specs cannot be read
	draining   bool
	failed     error // why Run ends by itself
	lease      lease
	asking     int           // beats that are not answered yet
	silent     bool          // the lease was lost, and not renewed since
	losses     int           // of the lease
	unwritten  Rarely        // for the log: ends that could not be written down
	unrenewed  Rarely        // the same of the lease
	ahead      time.Duration // of the claim
}

// ended is a task whose handler has returned.
type ended struct {
	task  *task
	out   driver.Completion
	tries int
	early bool // by CancelRunning
}

// newWorker returns a worker whose lease was renewed at a time.
func newWorker(env *Env, e driver.Worker, kinds *driver.KindGate, renewed time.Time) *Worker {
	w := &Worker{
		env: env, engine: e, kinds: kinds, wake: make(chan struct{}, 1), doubt: make(chan struct{}, 1),
		asks: make(chan struct{}, 1), gates: map[driver.LimitKey]*gate{}, back: map[time.Duration][]*driver.Delivery{}, tasks: map[driver.Ref]*task{},
		lanes: map[string]*lane{}, unread: map[string]bool{}, ahead: minClaimAhead,
		made: time.Now(), rounds: map[time.Duration][]*task{},
		lease: newLease(env.Lease, renewed), lastPolled: renewed, lastClaim: renewed,
	}
	if w.silent = w.lease.at(time.Now()) == over; w.silent {
		w.doubt <- struct{}{} // it took long to be made known
	}
	w.room = sync.NewCond(&w.mu)
	linger := endsLinger
	if env.Manual {
		linger = 0 // nobody adds meanwhile
	}
	w.ends = batch.New(w.finish, linger)
	w.shared = &lane{limit: env.Concurrency}
	w.shared.queues = w.shared
	for kind := range env.Handlers {
		l := &lane{kind: kind, limit: env.Concurrency, queues: w.shared}
		if n := env.Kinds[kind]; n > 0 {
			l.limit, l.limited, l.queues = min(n, env.Concurrency), true, l
		}
		w.lanes[kind] = l
	}
	return w
}

// set moves a task to a phase. w.mu is held.
func (w *Worker) set(t *task, p phase) {
	w.counts[t.phase]--
	w.counts[p]++
	t.phase = p
}

// queuesOf returns the lane in whose queues a task waits. w.mu is held.
func (w *Worker) queuesOf(t *task) *lane { return w.lanes[t.held.Record.Kind].queues }

// isGone reports whether a task, whose time has come, is not here any more. w.mu is held.
func (w *Worker) isGone(t *task) bool {
	return w.draining || w.tasks[t.held.Ref] != t
}

// drop takes a task away, but not out of the queue that it may be in. w.mu is held.
func (w *Worker) drop(t *task) {
	w.vacate(t)
	w.endTrial(t)
	w.leave(t)
	w.counts[t.phase]--
	delete(w.tasks, t.held.Ref)
	w.weigh(t.held, -1)
	w.room.Broadcast()
}

// clearQueues empties the queues of tasks that have not begun. w.mu is held.
func (w *Worker) clearQueues() {
	w.exact = nil
	for _, l := range w.lanes {
		l.queues.claimable, l.queues.ready, l.queues.last, l.queues.suspects = classes{}, classes{}, classes{}, nil
		l.lines, l.turns, l.lined = nil, nil, 0
		w.mind(l)
	}
	for _, g := range w.gates {
		g.parked = nil
	}
}

// forget drops a task that has ended, and goes on to its newer version. w.mu is held.
func (w *Worker) forget(t *task) {
	w.drop(t)
	if t.next != nil && !w.draining {
		w.add(t.next)
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
		w.release(back, w.env.Lease/4+rand.N(w.env.Lease/2))
	}
}

// admit takes one job, or returns false if it is better off elsewhere: nobody here can
// run it, which the engine should have known, or the lease is not renewed, so that others
// must get what is running here.
func (w *Worker) admit(ctx context.Context, h *driver.Delivery) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for (len(w.tasks) >= w.most() || w.bytes >= maxHeldBytes) && ctx.Err() == nil {
		w.full++
		w.room.Wait()
		w.full--
	}
	if t := w.tasks[h.Ref]; t != nil && !w.silent {
		// It was moved, or waits for its next attempt, and this worker does not know yet.
		// The same version once more is dropped: the engine hands it out again, or it is
		// settled by the end of the one that is here.
		if h.Record.Version > t.held.Record.Version {
			t.next = h
		}
		return true
	}
	if ctx.Err() != nil || w.silent || w.lanes[h.Record.Kind] == nil {
		return false
	}
	if r := &h.Record; r.IsOccurrence() && !w.env.Times.MayFollow(r.Occurrence) {
		if !w.unread[r.Schedule] {
			w.unread[r.Schedule] = true
			w.env.Log.Warn("durable: the spec of a schedule cannot be read; its jobs are left to other workers", "name", r.Schedule)
		}
		return false
	}
	w.add(h)
	return true
}

// wakeRoom wakes those who wait for room. It takes the lock, so that it cannot come
// between another's look at its condition and its wait.
func (w *Worker) wakeRoom() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.room.Broadcast()
}

// add takes a job that is not here. w.mu is held.
func (w *Worker) add(h *driver.Delivery) {
	t := &task{held: h, crashes: h.Record.Crashes}
	h.Exact = t.crashes > 0 || h.Record.Attempt+1 >= h.Record.MaxAttempts || w.isCovered(h)
	w.tasks[h.Ref] = t
	w.counts[fetched]++
	w.weigh(h, 1)
	w.schedule(t, 0)
}

// schedule has a task that was fetched wait for its time to be claimed, and for as long
// as it is told to. It looks at the clock once a lease at least, because that may be set
// forward. w.mu is held.
func (w *Worker) schedule(t *task, least time.Duration) {
	d, come := w.env.Clock.Until(t.held.Record.Due), w.toWait
	if !t.held.Exact {
		d, come = d-w.ahead, w.toClaim
	}
	switch {
	case max(d, least) > w.env.Lease:
		w.later(w.env.Lease, t, func(t *task) { w.schedule(t, max(0, least-w.env.Lease)) })
	case d > 0 && d >= least && !t.held.Exact:
		w.joinRound(t, d)
	case d <= 0 && least <= 0 && !t.held.Exact:
		w.toClaim(t) // now, so that its kind is shut before the engine hands out more
	default:
		w.later(max(d, least), t, come)
	}
}

// later calls f with w.mu held when d has passed, unless the task is not here any more.
func (w *Worker) later(d time.Duration, t *task, f func(*task)) {
	w.after(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.isGone(t) {
			f(t)
		}
	})
}

// after calls f when d has passed, at once if it is not positive; never on this
// goroutine, so that it may be called with w.mu held.
func (w *Worker) after(d time.Duration, f func()) {
	if _, err := w.wheel.Schedule(d, f); err != nil {
		time.AfterFunc(d, f) // a wheel of the user's, stopped or full
	}
}

// toClaim queues a task for the claim. w.mu is held.
func (w *Worker) toClaim(t *task) {
	if w.isGone(t) {
		return
	}
	if w.isCovered(t.held) { // since it joined its round
		t.held.Exact = true
		w.schedule(t, 0)
		return
	}
	w.set(t, claimable)
	l := w.queuesOf(t)
	l.claimable.add(t)
	w.activate(l)
	w.wakeClaims()
}

func (w *Worker) wakeClaims() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// claimLoop claims what is due soon until ctx ends.
func (w *Worker) claimLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		for ctx.Err() == nil {
			batch := w.takeClaimable()
			if len(batch) == 0 {
				break
			}
			w.claim(ctx, batch)
		}
	}
}

// takeClaimable returns what is to be claimed now: what has a place, and what may begin
// soon. A lane claims no more than that: what waits unclaimed can be canceled, or run by
// another worker.
func (w *Worker) takeClaimable() []*task {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.exact), maxClaims)
	batch := slices.Clone(w.exact[:n])
	w.exact = shift(w.exact, n)
	for _, t := range batch {
		w.set(t, claiming)
	}
	active := w.activeLanes()
	for class := range (classes{}) {
		for _, l := range active {
			// Each class has its own share of those that are ready, so that none keeps a
			// higher one waiting.
			n := max(0, min(len(l.claimable[class]), l.limit-len(l.ready[class]), maxClaims-len(batch)))
			for _, t := range l.claimable[class][:n] {
				w.set(t, claiming)
				t.counted = true
			}
			l.claiming[class] += n
			batch = append(batch, l.claimable[class][:n]...)
			l.claimable[class] = shift(l.claimable[class], n)
			w.mind(l)
		}
	}
	return batch
}

// shift drops the first n, and the array with them when nothing is left.
func shift(s []*task, n int) []*task {
	clear(s[:n])
	if n == len(s) {
		return nil
	}
	return s[n:]
}

// claim asks the engine, and sets each job on its way. If the lease is lost meanwhile the
// answer comes too late, and all are dropped.
func (w *Worker) claim(ctx context.Context, batch []*task) {
	held := make([]*driver.Delivery, len(batch))
	for i, t := range batch {
		held[i] = t.held
	}
	w.mu.Lock()
	losses := w.losses
	began := time.Now()
	w.claimSince = began
	w.mu.Unlock()
	verdicts := w.engine.Claim(ctx, held)
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.adapt(now.Sub(began))
	w.claimSince = time.Time{}
	if slices.ContainsFunc(verdicts, func(v driver.ClaimResult) bool { return v.Status != driver.RetryLater }) {
		w.lastClaim = now
	}
	var back []*driver.Delivery
	for i, t := range batch {
		if t.counted {
			t.counted = false
			w.queuesOf(t).claiming[classOf(t)]--
		}
		switch {
		case verdicts[i].Status == driver.Gone:
			w.forget(t)
		case w.stands(now) == over || w.losses != losses:
			w.drop(t)
			back = append(back, t.held)
		default:
			w.judged(t, verdicts[i])
		}
	}
	w.giveBack(back)
	w.start() // places may be free that were reserved
}

// judged sets a task on its way whose claim was answered. w.mu is held.
func (w *Worker) judged(t *task, v driver.ClaimResult) {
	if v.Status == driver.Granted {
		t.attempt, t.token = v.Attempt, v.At
		w.granted(t)
		w.set(t, claimed)
		w.proceed(t)
		return
	}
	w.vacate(t)
	w.endTrial(t)
	if v.Status == driver.Throttled {
		w.limited(t, v)
		return
	}
	w.leave(t)
	w.set(t, fetched)
	if v.Status == driver.Suspect {
		t.held.Exact, t.crashes = true, max(v.Crashes, 1)
	}
	w.schedule(t, max(v.After, time.Millisecond))
}

// adapt follows what a claim takes: four times that, up at once and down by a hundredth,
// is enough that the commit is over when the job is due. w.mu is held.
func (w *Worker) adapt(took time.Duration) {
	w.ahead = min(max(4*took, w.ahead-w.ahead/100, minClaimAhead), maxClaimAhead)
}

// proceed queues a claimed task whose time has come, by the engine's clock as it is known
// now, and has others wait for theirs. w.mu is held.
func (w *Worker) proceed(t *task) {
	if t.phase != claimed {
		return // it was canceled
	}
	early := w.env.Clock.Until(t.held.Record.Due)
	if !t.token.IsZero() {
		early = max(early, w.env.Clock.Until(t.token))
	}
	if early > 0 {
		w.later(min(early, w.env.Lease), t, w.proceed)
		return
	}
	if t.attempt > t.held.Record.MaxAttempts {
		w.vacate(t)
		w.set(t, ending)
		go w.bury(t)
		return
	}
	if t.reserved {
		w.begin(t)
		return
	}
	w.set(t, ready)
	l := w.queuesOf(t)
	l.ready.add(t)
	w.activate(l)
	w.start()
}

// finish writes ends down. One that fails is tried again until it succeeds, or the lease is
// lost: an end that is known here must not be forgotten.
func (w *Worker) finish(batch []*ended) {
	outs := make([]driver.Completion, len(batch))
	for i, e := range batch {
		outs[i] = e.out
	}
	ctx, cancel := context.WithTimeout(w.env.Asking, max(w.env.Lease, 5*time.Second))
	defer cancel()
	errs := w.engine.Finish(ctx, outs)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, e := range batch {
		switch err := errs[i]; {
		case err == nil:
			if e.task.completed != nil {
				w.logFailure(e.task, &e.out)
			}
			w.tally(e)
			w.forget(e.task)
		case errors.Is(err, driver.ErrLeaseLost) && e.task.completed != nil:
			w.completed(e)
		case errors.Is(err, driver.ErrChanged):
			w.followChanged(e)
		case errors.Is(err, driver.ErrLeaseLost):
			w.env.Stats.LeaseLost.Add(1)
			w.env.Log.Warn("durable: another worker has taken over; the end of the attempt is not written down", "ref", e.out.Delivery.Ref)
			w.forget(e.task)
		default:
			if w.failed != nil && errors.Is(err, driver.ErrClosed) {
				continue // for good: drain gives up
			}
			e.tries++
			pause := min(20*time.Millisecond<<min(e.tries, 10), 5*time.Second)
			if w.unwritten.Now() {
				w.env.Log.Warn("durable: the end of an attempt could not be written down; trying again", "ref", e.out.Delivery.Ref, "error", err, "pause", pause)
			}
			w.after(pause, func() { w.ends.Put(e) })
		}
	}
	w.start()
}

func (w *Worker) tally(e *ended) {
	out := e.out
	switch {
	case e.early:
		w.env.Stats.Stopped.Add(1)
	case out.Uncounted && out.End == driver.Retry:
		w.env.Stats.Snoozed.Add(1)
	case out.Uncounted:
		w.env.Stats.Expired.Add(1)
	case out.End == driver.Done:
		w.env.Stats.Done.Add(1)
	case out.End == driver.Retry:
		w.env.Stats.Failed.Add(1)
	case out.End == driver.DeadLetter:
		w.env.Stats.Dead.Add(1)
	}
	if out.Next != nil {
		w.env.Stats.Added.Add(1)
	}
}

func (w *Worker) release(held []*driver.Delivery, after time.Duration) error {
	ctx, cancel := context.WithTimeout(w.env.Asking, 5*time.Second)
	defer cancel()
	err := w.engine.Release(ctx, held, after)
	if err != nil {
		w.env.Log.Warn("durable: jobs could not be handed back; others get them after the lease", "error", err)
	}
	return err
}

// drain hands back what has not begun, and waits for the rest. If the engine is silent it
// gives up after a lease from when the last handler has returned: then what is not
// written down is not this worker's any more. Close makes it give up sooner.
func (w *Worker) drain() {
	w.mu.Lock()
	w.draining = true
	var back []*driver.Delivery
	for _, t := range w.tasks {
		if t.phase < running {
			back = append(back, t.held)
			w.forget(t)
		}
	}
	w.clearQueues()
	w.giveBackPutOff() // its timer may come when Run has ended, or never
	w.giveBack(back)   // more than once: handlers may run for long, and the lease is renewed meanwhile
	defer w.mu.Unlock()
	for w.counts[running] > 0 {
		w.room.Wait()
	}
	over := errors.Is(w.failed, driver.ErrClosed) // no end can be written down
	giveUp := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		over = true
		w.room.Broadcast()
	}
	defer time.AfterFunc(w.env.Lease, giveUp).Stop()
	defer context.AfterFunc(w.env.Asking, giveUp)()
	for len(w.tasks) > 0 && !over {
		w.room.Wait()
	}
	if len(w.tasks) > 0 {
		w.env.Log.Error("durable: the ends of attempts could not be written down; they will run again", "attempts", len(w.tasks))
	}
}
