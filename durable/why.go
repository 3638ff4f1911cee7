package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// Cause is the first thing that keeps a job from running.
type Cause string

// The causes, in the order in which Why tests them.
const (
	CauseDead    Cause = "dead"        // Its last attempt failed, or its handler discarded it.
	CauseEnded   Cause = "ended"       // It is done or canceled, and its Retain keeps it.
	CauseRunning Cause = "running"     // A living worker has claimed it.
	CauseLost    Cause = "worker lost" // A worker has claimed it, and the lease of that worker has ended.
	CauseExpired Cause = "expired"     // Its Expires has passed, so that it is dead when its turn comes.
	CauseClock   Cause = "clock"       // It is due by this machine's clock, and not by the engine's.
	CauseRetry   Cause = "retry"       // Its last attempt failed, and the next is not due.
	CauseNotDue  Cause = "not due"     // It is due later.
	CauseKey     Cause = "key"         // A newer job has its key, so that it ends when its turn comes.
	CausePaused  Cause = "paused"      // A pause covers it.
	CauseRate    Cause = "rate"        // A limit has no token for it.
	CauseTurn    Cause = "turn"        // A limit is full, and other jobs of its lane come first.
	CauseLimit   Cause = "limit"       // A limit is full, and it is the next of its lane.
	CauseNoKind  Cause = "no worker"   // No living worker has a handler for its kind.
	CauseBusy    Cause = "busy"        // Each worker with a handler for its kind runs other jobs.
	CauseSoon    Cause = "soon"        // Nothing that the store knows is in its way.

	// The causes of WhySchedule, if no occurrence waits or runs.
	CauseSchedulePaused   Cause = "schedule paused"   // PauseSchedule has paused it.
	CauseScheduleEnded    Cause = "schedule ended"    // No time is left.
	CauseScheduleCanceled Cause = "schedule canceled" // Its occurrence was canceled.
)

// Reason is an answer of Why. A field that does not belong to the Cause is zero.
type Reason struct {
	Cause Cause
	Text  string    // The cause and its facts in plain words, for an operator.
	Now   time.Time // The time of the call. All times here are by the engine's clock.
	Job   Info      // Zero for a schedule without an occurrence.

	// Until is when the cause ends by itself: the due time, the end of the pause, the time of the next token, or the end
	// of the lease, which a living worker renews. Zero if that is not known.
	Until time.Time

	Pause  *Pause     // The pause that covers the job: of several the one that lasts longest.
	Limit  *LimitInfo // The limit in its way. For a limit PerLane, Taken and Next are those of the job's lane.
	First  int        // For CauseTurn: the due jobs of its lane that come first, at most 100.
	Holder Ref        // For CauseKey: the job that has the key.

	// Running are up to 10 running jobs in its way, the longest due first: those that the full
	// limit covers, or those of the busy workers.
	Running []Info

	// Workers are the worker that has claimed the job; for CauseNoKind all living workers; and for
	// CauseBusy and CauseSoon the living workers with a handler for its kind.
	Workers []WorkerInfo
}

const (
	shownRunning = 10
	countedFirst = 100

	// soon is for how long a due job of a worker that runs others is taken to begin at any moment.
	soon = time.Second
)

// Why returns why a job has not run, or has not ended: the first cause in the order in which
// the engine comes to it. It makes up to eight reads, of which [Queue.Workers] is the most
// expensive. They are no snapshot, so that a job that changes meanwhile may have the cause of a
// moment ago. [ErrNotFound]: the job was done, canceled or deleted, or the Ref is not one of this
// queue; the text says which.
//
// The number of jobs that a worker of another process may run is not stored. So CauseBusy means
// that each worker with a handler for the kind runs jobs, and that the job has been due for a
// second or longer.
func (q *Queue) Why(ctx context.Context, r Ref) (Reason, error) {
	if q.closed.Err() != nil {
		return Reason{}, ErrClosed
	}
	job, err := q.engine.Get(ctx, r)
	if err == ErrNotFound { // and not more, such as "is not a Ref of this queue"
		err = fmt.Errorf("%w: %.200q was done, canceled or deleted, and is not kept", err, r)
	}
	if err != nil {
		return Reason{}, fmt.Errorf("durable: Why: %w", err)
	}
	w := &why{q: q, Reason: Reason{Now: q.clock.Time(), Job: job}}
	for _, ask := range []func(context.Context) error{w.state, w.time, w.key, w.flow, w.workers} {
		if err := ask(ctx); err != nil || w.Cause != "" {
			return w.Reason, err
		}
	}
	return w.Reason, nil
}

// WhySchedule returns why a schedule has no occurrence, or, if it has one, why that has not
// run. [ErrNotFound]: no schedule has the name. [ErrInvalid]: its spec cannot be read here, since
// a newer release has stored it.
func (q *Queue) WhySchedule(ctx context.Context, name string) (Reason, error) {
	if q.closed.Err() != nil {
		return Reason{}, ErrClosed
	}
	s, p, err := q.calendar.Stored(ctx, name)
	if err != nil {
		return Reason{}, fmt.Errorf("durable: WhySchedule: the schedule %.300q: %w", name, err)
	}
	o, err := q.calendar.Occurrence(ctx, name)
	if err != nil {
		return Reason{}, err
	}
	if o.State != 0 {
		return q.Why(ctx, o.Ref)
	}
	w := &why{q: q, Reason: Reason{Now: q.clock.Time()}}
	if p.Paused {
		w.is(CauseSchedulePaused, "The schedule %q is paused, and no occurrence waits. ResumeSchedule continues it.", name)
		return w.Reason, nil
	}
	next, err := q.calendar.Replacement(name, p, s.Revision, s.Last, nil)
	switch {
	case err != nil:
		return Reason{}, fmt.Errorf("durable: WhySchedule: the schedule %.300q: %w", name, err)
	case next == nil:
		w.is(CauseScheduleEnded, "The schedule %q has no time left. Its last occurrence that ended: %s.", name, w.at(s.Last))
	default:
		w.is(CauseScheduleCanceled, "The occurrence of the schedule %q was canceled, so that none follows. ResumeSchedule continues it; its next time is %s.",
			name, w.at(next.Due))
	}
	return w.Reason, nil
}

// why looks for the cause. Each of its methods sets Cause if it finds one.
type why struct {
	q *Queue
	Reason
}

func (w *why) is(c Cause, text string, args ...any) { w.Cause, w.Text = c, fmt.Sprintf(text, args...) }

// at writes a time, and how far off it is.
func (w *why) at(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	switch text, off := t.UTC().Format(time.RFC3339), round(t.Sub(w.Now)); {
	case off > 0:
		return fmt.Sprintf("%s (in %v)", text, off)
	case off < 0:
		return fmt.Sprintf("%s (%v ago)", text, -off)
	default:
		return text + " (now)"
	}
}

// round keeps milliseconds only of short times.
func round(d time.Duration) time.Duration {
	if d.Abs() < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

// state answers for a job that does not wait.
func (w *why) state(ctx context.Context) error {
	j := &w.Job
	switch j.State {
	case Dead:
		w.is(CauseDead, "It is dead, after %d of %d attempts: %s. Redrive makes it wait again.", j.Attempt, j.Job.MaxAttempts, j.LastError)
	case Done, Canceled:
		w.is(CauseEnded, "It has ended: %s at %s, after %d of %d attempts. It is kept for its Retain of %v.", j.State, w.at(j.End), j.Attempt, j.Job.MaxAttempts, j.Job.Retain)
	case Running:
		all, err := w.q.Workers(ctx)
		if err != nil {
			return err
		}
		w.Workers = slices.DeleteFunc(all, func(i WorkerInfo) bool { return i.Name != j.Worker })
		for _, i := range w.Workers {
			w.Until = i.Until
		}
		if w.Until.After(w.Now) {
			w.is(CauseRunning, "Worker %s has claimed it for attempt %d%s. It was due %s. The lease of the worker ends %s, unless renewed.",
				j.Worker, j.Attempt, timeoutIn(j), w.at(j.Due), w.at(w.Until))
			return nil
		}
		ended := "its lease has ended: " + w.at(w.Until)
		if w.Until.IsZero() {
			ended = "no longer exists"
		}
		w.is(CauseLost, "Worker %s has claimed it for attempt %d, and %s. The next free worker with a handler for %q takes the job over.",
			j.Worker, j.Attempt, ended, j.Job.Kind)
	}
	return nil
}

// time answers for a job whose time has not come, or has passed.
func (w *why) time(context.Context) error {
	j, here := &w.Job, time.Now()
	switch behind := here.Sub(w.Now); {
	case !j.Job.Expires.IsZero() && !j.Job.Expires.After(w.Now):
		w.is(CauseExpired, "It expired %s, before an attempt could begin. It dies when its turn comes.", w.at(j.Job.Expires))
		return nil
	case !j.Due.After(w.Now):
		return nil
	case !w.q.manual && behind >= time.Second && !j.Due.After(here):
		w.is(CauseClock, "It is due %s by the engine's clock, which is %v behind that of this machine.", w.at(j.Due), round(behind))
	case j.LastError != "" && j.Attempt > 0:
		w.is(CauseRetry, "Attempt %d of %d failed: %s. The next one is due %s.", j.Attempt, j.Job.MaxAttempts, j.LastError, w.at(j.Due))
	default:
		w.is(CauseNotDue, "It is due %s.", w.at(j.Due))
	}
	w.Until = j.Due
	return nil
}

// key answers for a job that has freed its key and was handed back.
func (w *why) key(ctx context.Context) error {
	if w.Job.Job.Key == "" {
		return nil
	}
	ref, err := w.q.engine.Lookup(ctx, w.Job.Job.Key)
	if errors.Is(err, ErrNotFound) || err == nil && ref == w.Job.Ref {
		return nil
	}
	if err == nil {
		w.Holder = ref
		w.is(CauseKey, "The newer job %s has its key %q. It ends without an attempt when its turn comes.", ref, w.Job.Job.Key)
	}
	return err
}

// flow answers for a job that a pause or a limit covers, as driver.Take decides: a token comes
// before a permit.
func (w *why) flow(ctx context.Context) error {
	kind, lane := w.Job.Job.Kind, w.Job.Job.Lane
	f, err := w.q.engine.FlowControl(ctx)
	if err != nil {
		return err
	}
	limits, paused := f.Covering(kind, lane, w.Now)
	if paused > 0 {
		w.paused(f, paused)
		return nil
	}
	if len(limits) == 0 {
		return nil
	}
	usage, err := w.q.engine.Usage(ctx)
	if err != nil {
		return err
	}
	counters := countersOf(usage)
	var full *LimitInfo
	for _, l := range limits {
		c := counters[l.Key(lane)]
		i := &LimitInfo{Name: l.Name, Limit: l.Limit, Taken: c.Taken}
		if at := l.NextToken(&c, w.Now); at.After(w.Now) {
			i.Next = at
		}
		if i.Next.Sub(w.Now) > driver.TokenAhead && i.Next.After(w.Until) {
			w.Until, w.Limit = i.Next, i
			w.is(CauseRate, "The limit %q has no token left. The next one comes %s.", l.Name, w.at(i.Next))
		}
		if l.Running > 0 && c.Taken >= l.Running && full == nil {
			full = i
		}
	}
	if w.Cause != "" || full == nil {
		return nil
	}
	return w.full(ctx, full)
}

// paused answers for a job that pauses cover, of which one lasts as long as given.
func (w *why) paused(f *driver.FlowControl, longest time.Duration) {
	kind, lane := w.Job.Job.Kind, w.Job.Job.Lane
	for _, p := range f.Pauses() {
		if (p.Kind != "" && p.Kind != kind) || (p.Lane != "" && p.Lane != lane) || p.Rest(w.Now) < longest {
			continue
		}
		w.Pause, w.Until = &p, p.Until
		if p.Until.IsZero() {
			w.is(CausePaused, "A pause of %v covers it. Resume ends it.", p.Pausable)
		} else {
			w.is(CausePaused, "A pause of %v covers it. It ends %s.", p.Pausable, w.at(p.Until))
		}
		return
	}
}

func countersOf(usage []driver.Usage) map[driver.LimitKey]driver.Counter {
	all := map[driver.LimitKey]driver.Counter{}
	for _, u := range usage {
		all[u.LimitKey] = u.Counter
	}
	return all
}

// full answers for a job that waits for a permit. A limit PerLane counts only the job's lane.
func (w *why) full(ctx context.Context, l *LimitInfo) error {
	w.Limit = l
	covered := Filter{State: Running, Kind: l.Kind}
	if l.PerLane {
		covered.Lane = w.Job.Job.Lane
	}
	var err error
	if w.Running, _, err = w.q.engine.Page(ctx, covered, driver.Cursor{}, shownRunning); err != nil {
		return err
	}
	waiting, _, err := w.q.engine.Page(ctx, Filter{State: Waiting, Kind: l.Kind, Lane: w.Job.Job.Lane}, driver.Cursor{}, countedFirst)
	if err != nil {
		return err
	}
	for _, i := range waiting {
		if w.comesFirst(&i) {
			w.First++
		}
	}
	text := fmt.Sprintf("The limit %q is full, with %d of %d permits taken. The running jobs that it covers: %s.",
		l.Name, l.Taken, l.Limit.Running, w.jobs(w.Running))
	if w.First == 0 {
		w.is(CauseLimit, "%s", text)
		return nil
	}
	w.is(CauseTurn, "%s The due jobs of its lane that come first: %d.", text, w.First)
	return nil
}

// comesFirst reports whether another waiting job has its turn before the job, in the same lane.
func (w *why) comesFirst(i *Info) bool {
	j := &w.Job
	if i.Due.After(w.Now) || i.Job.Lane != j.Job.Lane {
		return false
	}
	return i.Job.Priority > j.Job.Priority || i.Job.Priority == j.Job.Priority && i.Due.Before(j.Due)
}

// jobs names jobs that run.
func (w *why) jobs(infos []Info) string {
	return listed(infos, func(i *Info) string {
		return fmt.Sprintf("%s of kind %q, due %s, on worker %s%s", i.Ref, i.Job.Kind, w.at(i.Due), i.Worker, timeoutIn(i))
	})
}

// listed writes each element of a list.
func listed[T any](all []T, text func(*T) string) string {
	var texts []string
	for _, one := range all {
		texts = append(texts, text(&one))
	}
	return cmp.Or(strings.Join(texts, "; "), "none")
}

// timeoutIn names the Timeout of a job: a handler that runs for longer hangs.
func timeoutIn(i *Info) string {
	if i.Job.Timeout == 0 {
		return ""
	}
	return fmt.Sprintf(", with a Timeout of %v", i.Job.Timeout)
}

// workers answers for a job that waits for a worker.
func (w *why) workers(ctx context.Context) error {
	kind := w.Job.Job.Kind
	living, err := w.q.Workers(ctx)
	if err != nil {
		return err
	}
	living = slices.DeleteFunc(living, func(i WorkerInfo) bool { return !i.Until.After(w.Now) })
	handled, err := w.handled(ctx, living)
	if err != nil {
		return err
	}
	if !handled {
		w.Workers = living
		w.is(CauseNoKind, "No living worker has a handler for %q. The living workers: %s.", kind, listed(living, kindsIn))
		return nil
	}
	w.Workers = slices.DeleteFunc(living, func(i WorkerInfo) bool { return !mayHandle(&i, kind) })
	idle := slices.ContainsFunc(w.Workers, func(i WorkerInfo) bool { return i.Jobs == 0 })
	if idle || w.Now.Sub(w.Job.Due) < soon {
		w.is(CauseSoon, "It has been due since %s, and nothing that is stored is in its way. If it does not begin, see the logs of the workers with a handler for %q: %s.",
			w.at(w.Job.Due), kind, listed(w.Workers, jobsIn))
		return nil
	}
	running, _, err := w.q.engine.Page(ctx, Filter{State: Running}, driver.Cursor{}, shownRunning)
	if err != nil {
		return err
	}
	w.Running = slices.DeleteFunc(running, func(i Info) bool {
		return !slices.ContainsFunc(w.Workers, func(o WorkerInfo) bool { return o.Name == i.Worker })
	})
	w.is(CauseBusy, "It has been due since %s, and each worker with a handler for %q runs other jobs: %s. The oldest of these: %s.",
		w.at(w.Job.Due), kind, listed(w.Workers, jobsIn), w.jobs(w.Running))
	return nil
}

// handled reports whether a living worker has a handler for the kind of the job. Of a worker with
// more kinds than are listed, only the engine knows.
func (w *why) handled(ctx context.Context, living []WorkerInfo) (bool, error) {
	kind, some := w.Job.Job.Kind, false
	for _, i := range living {
		if slices.Contains(i.Kinds, kind) {
			return true, nil
		}
		some = some || mayHandle(&i, kind)
	}
	if !some {
		return false, nil
	}
	all, err := w.q.engine.Unhandled(ctx)
	return !slices.ContainsFunc(all, func(u Unhandled) bool { return u.Kind == kind }), err
}

// mayHandle reports whether a worker has a handler for a kind, as far as its kinds are listed.
func mayHandle(i *WorkerInfo, kind string) bool {
	return slices.Contains(i.Kinds, kind) || i.AllKinds > len(i.Kinds)
}

func jobsIn(i *WorkerInfo) string { return fmt.Sprintf("%s (jobs: %d)", i.Name, i.Jobs) }

func kindsIn(i *WorkerInfo) string {
	if i.AllKinds > len(i.Kinds) {
		return fmt.Sprintf("%s (%d kinds)", i.Name, i.AllKinds)
	}
	return fmt.Sprintf("%s (kinds: %s)", i.Name, strings.Join(i.Kinds, ", "))
}
