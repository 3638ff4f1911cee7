package durable

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
	"github.com/tickwheel/tickwheel/durable/internal/recur"
	"github.com/tickwheel/tickwheel/durable/internal/valid"
	"github.com/tickwheel/tickwheel/durable/internal/worker"
	"github.com/tickwheel/tickwheel/durable/internal/worker/attempt"
)

// closeTimeout is how long Close lets the engine answer what is under way: longer than the
// election of a leader.
const closeTimeout = 15 * time.Second

// Queue adds jobs to an engine, and runs those that are due. Make one with [Open]. All
// methods may be called by several goroutines at once, and from handlers; Run and Close
// wait for handlers, and must not be called from one.
type Queue struct {
	*link
	config   worker.Config // the options, for Run
	counters worker.Counters

	middleware []Middleware
	adds       *adder
	awaits     *awaits
	addAll     AddFunc // addJobs with the middleware around it

	closing sync.Once
	closeOf error

	registry

	running atomic.Pointer[worker.Worker] // for Stats; nil while Run is not under way
}

// registry has the handlers. None is added while a call of Run is under way: then a worker reads them, without the
// lock.
type registry struct {
	mu       sync.Mutex // guards all below
	inRun    bool       // a call of Run is under way
	handlers map[string]attempt.Handler
}

// Open returns a Queue on an engine. It reads the engine's clock, and so fails if the
// engine does not answer before ctx ends. Close of the Queue closes the engine, too;
// after an error the engine is as it was. An engine serves one Queue: Open returns an
// error while another Queue on the engine is not closed. Open panics on nil.
func Open(ctx context.Context, e driver.Engine, opts ...Option) (*Queue, error) {
	if e == nil {
		panic("durable: Open: nil Engine")
	}
	c := newConfig(opts)
	q := &Queue{link: &link{log: c.Log, engine: e}, config: c.Config, registry: registry{handlers: map[string]attempt.Handler{}}, middleware: c.middleware}
	if !own(e) {
		return nil, errors.New("durable: Open: the engine has a Queue already: each Queue needs an engine of its own")
	}
	if err := q.readClock(ctx); err != nil {
		disown(e)
		return nil, fmt.Errorf("durable: Open: reading the engine's clock: %w", err)
	}
	q.calendar = recur.NewCalendar(e, q.log, q.clock.Time, &q.counters.Added)
	q.closed, q.close = context.WithCancelCause(context.Background())
	q.requests, q.hangUp = context.WithCancelCause(context.Background())
	q.awaits = newAwaits(q.link)
	q.adds = newAdder(q.link, &q.counters.Added, q.awaits.check)
	q.addAll = wrapAdd(q.middleware, q.adds.addJobs)
	if !q.manual {
		q.wg.Go(q.followClock)
	} else if m, ok := q.engine.(interface {
		OnSet(func(was, now time.Time))
	}); ok {
		m.OnSet(q.clockWasSet)
	}
	return q, nil
}

// owned has the engines that have a Queue which is not closed. An engine that wraps another one
// is an engine of its own. One that cannot be a key, such as a struct with a slice, is not checked.
var owned sync.Map

// own makes a Queue the owner of an engine. It returns false if the engine has one.
func own(e driver.Engine) bool {
	if !reflect.ValueOf(e).Comparable() {
		return true
	}
	_, there := owned.LoadOrStore(e, nil)
	return !there
}

// disown ends the ownership.
func disown(e driver.Engine) {
	if reflect.ValueOf(e).Comparable() {
		owned.Delete(e)
	}
}

// Close ends the Queue and closes its engine. A Run that is under way ends as if its
// context had, and the contexts of its handlers end with [ErrClosed] as cause; Close
// waits until all have returned. To let handlers finish, end Run's context first, wait
// until Run has returned, then call Close. Later calls return what the first one did.
//
// An engine that does not answer delays Close by at most 15 seconds. Then calls of Add
// that are under way return [ErrUncertain], or ErrClosed if the job was not sent to the
// engine, and attempts whose end could not be stored run again. An attempt whose handler
// returns more than 15 seconds after the call of Close runs again, too, whatever it returns.
func (q *Queue) Close() error {
	q.closing.Do(func() {
		q.mu.Lock() // for Run, which must not join while Close waits
		q.close(ErrClosed)
		q.mu.Unlock()
		q.awaits.close()
		defer time.AfterFunc(closeTimeout, func() { q.hangUp(ErrClosed) }).Stop()
		defer q.hangUp(ErrClosed)
		q.adds.plain.Close()
		q.adds.keyed.Close()
		q.adds.contended.batch.Close()
		q.wg.Wait()
		q.closeOf = q.engine.Close()
		disown(q.engine)
	})
	return q.closeOf
}

// Add stores a job. When it returns without an error, the job is durable. With an error
// the Ref is empty. The errors are [ErrInvalid] for a job that is not valid; [ErrExists]
// for a Key that another job has; [ErrFull]; [ErrReadOnly]; [ErrStorage]; [ErrClosed]; and
// [ErrUncertain] if the answer was lost, or did not come before ctx ended. In the last
// case the job may have been stored, and if it was, it will run. If ctx has ended before
// the call, nothing is stored, and the error is the cause of ctx.
//
// Jobs that are added at the same time by several goroutines share a commit.
func (q *Queue) Add(ctx context.Context, j Job) (Ref, error) {
	refs, err := q.addAll(ctx, []Job{j})
	return refs[0], err
}

// AddMany is Add of several jobs, which share commits. It is not a transaction: some may
// be stored and others not. refs has as many elements as jobs. An error covers the jobs
// whose Ref is empty, and names each by its index; the others are stored. If one of them
// is not valid ([ErrInvalid]), none is stored. AddMany without jobs does nothing.
func (q *Queue) AddMany(ctx context.Context, jobs ...Job) (refs []Ref, err error) {
	return q.addAll(ctx, jobs)
}

// Cancel ends a waiting job. If it returns true, no attempt begins any more; if no
// attempt had failed before, the job has not run and never will. If it returns false, the
// job runs, has ended, or was canceled before. A job is claimed 75 to 300 ms before it is
// due, and cannot be canceled from then on. [ErrNotFound]: the Ref is not one of this
// queue. [ErrUncertain]: it may be canceled or not; call it again, and if that returns
// false, the first call may have canceled it.
//
// A handler may call Cancel for its own job, and gets false.
func (q *Queue) Cancel(ctx context.Context, r Ref) (bool, error) {
	if q.closed.Err() != nil {
		return false, ErrClosed
	}
	oks, errs := q.engine.Cancel(ctx, []Ref{r})
	if oks[0] {
		q.counters.Canceled.Add(1)
		q.awaits.check(r)
	}
	return oks[0], errs[0]
}

// CancelKey is Cancel of the job that has the key. It returns false without an error if
// no job has it. It also cancels a waiting job that has expired, until another takes its key.
func (q *Queue) CancelKey(ctx context.Context, key string) (bool, error) {
	if q.closed.Err() != nil {
		return false, ErrClosed
	}
	if !valid.Printable(key) {
		return false, nil // and a database might refuse the text
	}
	for before := Ref(""); ; {
		r, err := q.engine.Lookup(ctx, key)
		switch {
		case errors.Is(err, ErrNotFound):
			return false, nil
		case err != nil:
			return false, err
		case r == before:
			return false, nil
		}
		if ok, err := q.Cancel(ctx, r); ok || err != nil {
			return ok, err
		}
		before = r // unless it runs, another job has replaced it
	}
}

// Signal makes the job that waits under the key due now, and stores the payload, of at most
// 256 KiB, as Attempt.Signal of its next attempt, and of later attempts if that one fails.
// If it returns true, the next attempt has the signal. If it returns false, the attempt of
// the deadline has begun, or no job waits under the key, or the job has no Signals set, or
// it already has a signal, which stays. A job with Signals is claimed when it begins, so
// Signal works until then. If Signal returned false and the worker gives that claim back before the
// attempt begins, as when its lease is lost or a limit has changed, the attempt that comes later
// begins without the signal. [ErrUncertain]: the signal may be stored or not.
func (q *Queue) Signal(ctx context.Context, key string, payload []byte) (bool, error) {
	if q.closed.Err() != nil {
		return false, ErrClosed
	}
	if len(payload) > MaxPayload {
		return false, fmt.Errorf("durable: Signal: %w: the payload has %d bytes, more than %d", ErrInvalid, len(payload), MaxPayload)
	}
	if key == "" || !valid.Printable(key) {
		return false, nil
	}
	return q.engine.Signal(ctx, key, payload, clock.WholeMicros(q.clock.Time()))
}

// Lookup returns the job that has the key, or [ErrNotFound]: a job that has expired has it no
// more. On a cluster of NATS whose leader was cut off from the other servers, but not from this
// process, the Info may be old, by at most 20 s; ErrNotFound is not. The same holds for Get and
// All, whose ErrNotFound or end may be old, too.
func (q *Queue) Lookup(ctx context.Context, key string) (Info, error) {
	if q.closed.Err() != nil {
		return Info{}, ErrClosed
	}
	if key == "" || !valid.Printable(key) {
		return Info{}, ErrNotFound
	}
	for before := Ref(""); ; {
		r, err := q.engine.Lookup(ctx, key)
		if err != nil {
			return Info{}, err
		}
		i, err := q.Get(ctx, r)
		// An engine knows the key of an expired job until another takes it.
		expired := i.State == Waiting && !i.Job.Expires.IsZero() && !i.Job.Expires.After(q.clock.Time())
		switch ended := errors.Is(err, ErrNotFound) || err == nil && i.Ended(); {
		case !ended && !expired:
			return i, err
		case r == before:
			return Info{}, ErrNotFound
		}
		before = r // another job may have replaced it
	}
}

// Reschedule changes when a waiting job is due, also of one that waits for its next
// attempt. The job keeps its Ref. It returns whether it has moved the job; false as for
// [Queue.Cancel]. A time that has passed means now. [ErrFull]: the store has room only for
// the ends of jobs.
func (q *Queue) Reschedule(ctx context.Context, r Ref, at time.Time) (bool, error) {
	if q.closed.Err() != nil {
		return false, ErrClosed
	}
	if now := q.clock.Time(); at.Before(now) {
		at = now
	}
	at = clock.WholeMicros(at)
	if err := valid.Time(at); err != nil {
		return false, fmt.Errorf("durable: Reschedule: %w: %w", ErrInvalid, err)
	}
	ok, err := q.engine.Move(ctx, r, at)
	if ok {
		q.counters.Rescheduled.Add(1)
		q.awaits.check(r)
	}
	return ok, err
}

// Await waits until a job has ended, and returns its Info if the job is dead or has a Retain. A job that is retried,
// rescheduled, snoozed or handed back has not ended. Each occurrence of a schedule is a job of its own.
//
// [ErrEnded]: the job has ended, before the call or during it, and is not kept, so that nothing tells how it ended: it
// was done or canceled and has no Retain, or was replaced under its key. Await returns ErrEnded, too, for a job of a
// transaction that has not committed: call Await after the commit. [ErrNotFound] without ErrEnded: the Ref is empty or
// not valid, or is not one of this queue. [ErrClosed]: the Queue was closed first. If ctx ends first, Await returns the
// cause of ctx.
//
// Await returns at once if this Queue runs the job, cancels it, or replaces it under its key. Otherwise it returns
// about a second after the end of a job that was due, and at most about 30 s after the end of a job that was not due,
// such as one that another process has canceled. While the engine does not answer, Await waits, and the Queue logs
// that. A handler that awaits its own job waits until its context ends.
//
// All calls of a Queue share one poll, which reads the states of thousands of jobs with one request. It reads a job
// that is due after 50 ms, and then less often, down to once a second. It reads a job that is not due every 30 s, and
// when it is due. The poll spends at most about a tenth of its time on requests, unless these take longer than a
// second. It ends with the last call. A job that is not awaited costs nothing.
func (q *Queue) Await(ctx context.Context, r Ref) (Info, error) {
	if ctx.Err() != nil {
		return Info{}, context.Cause(ctx)
	}
	for began := time.Now(); ; {
		i, asOf, err := q.awaits.await(ctx, r)
		if err != nil || !asOf.Before(began) {
			return i, err
		}
		// Another call's reading was under way. The job may have been redriven since.
	}
}

// Get returns the Info of a job that waits, runs or is dead, or that its Retain keeps. [ErrNotFound]: the job
// has ended and is not kept, or the Ref is not one of this queue.
func (q *Queue) Get(ctx context.Context, r Ref) (Info, error) {
	if q.closed.Err() != nil {
		return Info{}, ErrClosed
	}
	return q.engine.Get(ctx, r)
}

// All iterates over the jobs that are kept and selected, in no order; [driver.Engine] says
// how it treats changes during the loop. It reads the whole store, with any Filter. An error
// is the last element.
//
// A job that changes meanwhile may come more than once. A loop that redrives dead jobs keeps their
// Refs and passes over those that it has seen, or else it may go on for as long as they die again.
func (q *Queue) All(ctx context.Context, f Filter) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if q.closed.Err() != nil {
			yield(Info{}, ErrClosed)
			return
		}
		if !isPossible(f) {
			return
		}
		for i, err := range q.engine.Scan(ctx, f) {
			if !yield(i, err) {
				return
			}
		}
	}
}

// isPossible reports whether there can be a job that the Filter selects. A database refuses texts
// that no job has.
func isPossible(f Filter) bool {
	return valid.Printable(f.Kind) && valid.Printable(f.Lane) && valid.Meta(f.Meta) == nil
}

// Redrive makes a dead job wait again, due now and with all its attempts. It takes the
// job's key again, and returns [ErrExists] if another job has that key; [ErrNotFound] if
// the job is not dead.
func (q *Queue) Redrive(ctx context.Context, r Ref) error {
	if q.closed.Err() != nil {
		return ErrClosed
	}
	err := q.engine.Redrive(ctx, r, clock.WholeMicros(q.clock.Time()))
	if err == nil {
		q.counters.Redriven.Add(1)
	}
	return err
}

// Delete removes a dead job, or one that its Retain keeps. [ErrNotFound]: it has not ended, or is not kept.
// [Queue.Cancel] ends a waiting job. If Redrive of the same job overlaps, one of
// the two returns ErrNotFound. [ErrUncertain]: it may be deleted or not; call it again,
// and if that returns ErrNotFound the first call, or another, has deleted it.
func (q *Queue) Delete(ctx context.Context, r Ref) error {
	if q.closed.Err() != nil {
		return ErrClosed
	}
	err := q.engine.Delete(ctx, r)
	if err == nil {
		q.counters.Deleted.Add(1)
	}
	return err
}
