package worker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/recur"
)

// How a job begins depends on what its claim has to say if it never ends.
//
// Most are claimed ahead of their time, so that they begin on time. If their worker dies,
// nobody knows which of them had begun. So such a claim counts no attempt, but the job is
// a suspect from then on: one of them may have killed the worker.
//
// A suspect, and a job that is on its last attempt, is claimed exactly: when its time has
// come and a place for its handler is reserved, so that its claim is its begin. If that
// never ends, the attempt counts. It costs the job a commit's time of lateness, and its
// place that long. No job costs another write.
//
// Few suspects run at a time, those with fewer crashes first: after two crashes one at a
// time. So a job that kills its process does that beside few others soon, and then beside
// none, and these lose two or three attempts at most. Fresh jobs have all other places.

// trialPlaces is how many suspects may be on trial at a time, if one of them has so many
// crashes. On trial is one from its claim on, for a lease at most: a job that has run
// for so long is no more likely to kill the process than others, and long handlers must
// not take turns.
func trialPlaces(crashes, concurrency int) int {
	if crashes > 1 {
		return 1
	}
	return max(1, concurrency/16)
}

// mayTry reports whether a suspect may go on trial. w.mu is held.
func (w *Worker) mayTry(t *task) bool {
	most := t.crashes
	for _, other := range w.trial {
		most = max(most, other.crashes)
	}
	return len(w.trial) < trialPlaces(most, w.env.Concurrency)
}

// endTrial gives a suspect's place on trial to the next. w.mu is held.
func (w *Worker) endTrial(t *task) {
	w.trial = slices.DeleteFunc(w.trial, func(other *task) bool { return other == t })
}

// bySuspicion is the order of suspects: fewer crashes first, then the longest due.
func bySuspicion(a, b *task) int {
	return cmp.Or(cmp.Compare(a.crashes, b.crashes), a.held.Record.Due.Compare(b.held.Record.Due))
}

// toWait is called when the time of a task should have come that is to be claimed
// exactly.
func (w *Worker) toWait(t *task) {
	if early := w.env.Clock.Until(t.held.Record.Due); early > 0 {
		w.later(early, t, w.toWait)
		return
	}
	w.await(t)
	w.start()
}

// await has a task wait that is to be claimed exactly, and is due. w.mu is held.
func (w *Worker) await(t *task) {
	l, r := w.queuesOf(t), &t.held.Record
	switch limits, paused := w.rules.Covering(r.Kind, r.Lane); {
	case t.crashes > 0 && paused:
		w.later(driver.RetryInterval, t, w.toWait)
		return
	case t.crashes > 0: // few run at a time: they pass no gates, and the engine decides
		i, _ := slices.BinarySearchFunc(l.suspects, t, bySuspicion)
		l.suspects = slices.Insert(l.suspects, i, t)
	case len(limits) > 0 || paused:
		w.join(t)
		return
	default:
		l.last.add(t)
	}
	w.set(t, waiting)
	w.activate(l)
}

// start begins what is ready, or reserves its place and has it claimed, the longest due
// first, while there is a place. Jobs that run, and jobs that have ended but whose end is not
// written down yet, may run again after a kill, so both are bounded. w.mu is held.
func (w *Worker) start() {
	for {
		taken := w.counts[running] + w.reserved
		if taken >= w.env.Concurrency || taken+w.counts[ending] >= max(w.env.Concurrency, minUnwritten) {
			return
		}
		l, queue := w.first()
		if queue == nil {
			w.lookAgain()
			return
		}
		if !w.mayBegin() {
			return // when a beat is answered this is called again
		}
		t := (*queue)[0]
		*queue = shift(*queue, 1)
		if t.line != nil {
			w.pass(t)
		}
		w.mind(l)
		w.begun++
		w.queuesOf(t).running++
		if t.phase == ready {
			w.wakeClaims() // ready has room for one more
			w.begin(t)
			continue
		}
		w.reserved++
		t.reserved = true
		if t.crashes > 0 {
			w.trial = append(w.trial, t)
		}
		w.set(t, claimable)
		w.exact = append(w.exact, t)
		w.wakeClaims()
	}
}

// first returns whose turn it is, as the head of a queue: of what may begin the class
// whose turn it is, and of that the longest due, but of suspects the one with the fewest
// crashes. Jobs to come of the classes before it keep their places. w.mu is held.
func (w *Worker) first() (l *lane, queue *[]*task) {
	order, active := turn(w.begun+1), w.activeLanes()
	for k, class := range order {
		if l, queue = w.firstOf(class, order[:k], active); queue == nil {
			continue
		}
		free := w.env.Concurrency - w.counts[running] - w.reserved
		for _, other := range active {
			free -= w.coming(other, order[:k])
		}
		if free <= 0 {
			return nil, nil
		}
		return l, queue
	}
	return nil, nil
}

// firstOf is first of one class, after those before it. To count what comes is dear, so
// that is asked only of lanes that have something to begin. w.mu is held.
func (w *Worker) firstOf(class int, before []int, active []*lane) (l *lane, queue *[]*task) {
	var suspect *lane
	var none []*task
	for _, other := range active {
		s := other.suspects
		tried := len(s) > 0 && classOf(s[0]) == class
		if len(other.ready[class]) == 0 && len(other.last[class]) == 0 && !tried && other.lined == 0 {
			continue
		}
		if other.queues.running+w.coming(other, before) >= other.limit {
			continue
		}
		queues := [3]*[]*task{&other.ready[class], &other.last[class], &none}
		if ln := other.turnOf(class); ln != nil {
			queues[2] = &ln.tasks[class]
		}
		for _, q := range queues {
			if len(*q) > 0 && (queue == nil || longerDue((*q)[0], (*queue)[0])) {
				l, queue = other, q
			}
		}
		if tried && (suspect == nil || bySuspicion(s[0], suspect.suspects[0]) < 0) {
			suspect = other
		}
	}
	if suspect != nil && w.mayTry(suspect.suspects[0]) && (queue == nil || longerDue(suspect.suspects[0], (*queue)[0])) {
		return suspect, &suspect.suspects
	}
	return l, queue
}

func longerDue(a, b *task) bool { return a.held.Record.Due.Before(b.held.Record.Due) }

// vacate gives a reserved place back, if the task has one. w.mu is held.
func (w *Worker) vacate(t *task) {
	if t.reserved {
		t.reserved = false
		w.reserved--
		w.queuesOf(t).running--
	}
}

// begin runs a task that has a place, counted in its lane. w.mu is held.
func (w *Worker) begin(t *task) {
	if t.reserved {
		t.reserved = false
		w.reserved--
	}
	w.set(t, running)
	ctx, cancel := context.WithCancelCause(w.env.Closed)
	if t.cancel = cancel; t.canceled {
		cancel(driver.ErrCanceled)
	}
	if t.crashes > 0 {
		w.after(w.env.Lease, func() { w.proven(t) })
	}
	go w.runTask(ctx, t)
}

func (w *Worker) proven(t *task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isGone(t) {
		return
	}
	w.endTrial(t)
	w.start()
}

func (w *Worker) runTask(ctx context.Context, t *task) {
	if !w.mayRun(ctx, t) {
		return
	}
	h := t.held
	now := w.env.Now()
	t.began = now
	if hasExpired(&h.Record, now) {
		w.expire(t)
		return
	}
	if d := h.Record.Timeout; d > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, d, driver.ErrTimeout)
		defer stop()
	}
	w.env.Stats.lateBy(now.Sub(h.Record.Due))
	w.env.Stats.Attempts.Add(1)
	a := &Attempt{Delivery: h, Number: t.attempt, ownEnd: &ownEnd{w: w, t: t}}
	t.ownEnd = a.ownEnd
	if h.Record.IsOccurrence() {
		if recur.DecodeOccurrence(h.Record.Occurrence).Pass {
			w.ran(t, nil) // it only makes the next one
			return
		}
		a.Occurrence = recur.Occurred(&h.Record)
	}
	call(ctx, w.env.Handlers[h.Record.Kind], a, func(err error) { w.ran(t, err) })
}

// mayRun looks at the lease once more, on the goroutine of the handler, right before
// that. If it is lost the task is dropped; if it is in doubt it waits among those that
// are ready.
func (w *Worker) mayRun(ctx context.Context, t *task) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	sound := w.mayBegin() // it may lose the lease, and end ctx
	lost := errors.Is(context.Cause(ctx), driver.ErrLeaseLost)
	if sound && !lost {
		return true
	}
	t.cancel(nil)
	t.cancel = nil
	l := w.queuesOf(t)
	l.running--
	switch {
	case lost || w.draining:
		w.drop(t)
		w.giveBack([]*driver.Delivery{t.held})
	default:
		w.set(t, ready)
		class := &l.ready[classOf(t)]
		*class = slices.Insert(*class, 0, t)
		w.activate(l)
	}
	w.room.Broadcast() // for drain
	return false
}

// ran takes a task whose handler has ended. The user's code that decides what becomes of
// it may fail in any way: the deferred call is made though it ends the goroutine.
func (w *Worker) ran(t *task, err error) {
	t.completed, err = t.ownEnd.end(err)
	out := w.env.undecided(t.held, t.attempt, err)
	defer func() { w.ended(t, &out) }()
	if err != nil && w.wasCanceled(t) {
		out = driver.Completion{Delivery: t.held, End: driver.Done}
	}
	if out.End != driver.Done {
		w.env.decide(&out, t.attempt, err)
	}
	w.env.Times.Follow(&out, t.began)
}

// ended has an end written down, and gives the place of the task to the next.
func (w *Worker) ended(t *task, out *driver.Completion) {
	if t.completed == nil {
		w.logFailure(t, out)
	}
	note(out, t.attempt, w.env.Now())
	w.mu.Lock()
	defer w.mu.Unlock()
	t.cancel(nil)
	t.cancel = nil
	w.set(t, ending)
	w.queuesOf(t).running--
	t.timed(w.env.Now())
	w.ends.Put(&ended{task: t, out: *out, early: t.failed})
	if len(t.gates) > 0 && w.lanes[t.held.Record.Kind].lined > 0 {
		w.ends.Hurry() // others wait for its places
	}
	w.room.Broadcast() // for drain
	w.start()          // its kind may have been at its limit
}

// logFailure logs how an attempt has ended, if it has failed.
func (w *Worker) logFailure(t *task, out *driver.Completion) {
	if out.End == driver.Done || out.Uncounted {
		return
	}
	short, _, _ := strings.Cut(out.Error, "\n\n") // without the stack of a panic
	w.env.Log.Warn("durable: an attempt failed", "kind", t.held.Record.Kind, "ref", t.held.Ref,
		"attempt", t.attempt, "dead", out.End == driver.DeadLetter, "error", short)
}

// errKilled is the failure of a job whose last attempt ended with its process.
var errKilled = errors.New("durable: the last attempt did not end: its process died, or was cut off")

// bury ends a job that has no attempt left.
func (w *Worker) bury(t *task) {
	out := driver.Completion{Delivery: t.held, End: driver.DeadLetter, Error: errKilled.Error()}
	w.env.Log.Warn("durable: a job is dead, because its last attempt did not end", "kind", t.held.Record.Kind,
		"ref", t.held.Ref, "error", out.Error)
	defer func() { w.ends.Put(&ended{task: t, out: out}) }()
	t.began = w.env.Now()
	note(&out, t.attempt, t.began)
	w.env.Times.Follow(&out, t.began)
}

// hasExpired reports whether no attempt may begin any more.
func hasExpired(r *driver.Record, now time.Time) bool {
	return !r.Expires.IsZero() && !now.Before(r.Expires)
}

// expire ends a job that has expired, in the place of its handler.
func (w *Worker) expire(t *task) {
	r := &t.held.Record
	out := driver.Completion{Delivery: t.held, End: driver.DeadLetter, Uncounted: true, Error: driver.ErrExpired.Error()}
	if r.IsOccurrence() { // that is what RunNone asks for
		out.End = driver.Done
	}
	w.env.Log.Warn("durable: a job has expired", "kind", r.Kind, "ref", t.held.Ref, "dropped", out.End == driver.Done)
	defer func() { w.ended(t, &out) }()
	w.env.Times.Follow(&out, t.began)
}
