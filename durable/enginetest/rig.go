package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/testservers/busy"
)

// shortLease returns the lease of the tests' workers: as short as the machine allows at this moment.
func shortLease() time.Duration { return busy.Longer(3 * time.Second) }

// steady is a lease that a busy machine does not lose. It is for tests that count attempts, and in
// which no worker takes over from another.
var steady = durable.WithLease(time.Minute)

// patience is how long a test waits for what must come. It is a bound, not a measure.
const patience = 5 * time.Minute

// feeding feeds a worker until what it returns is called, or the test ends. Where Fetch ends before,
// it is called again, as a Queue does: a slow server may not answer in time, or another worker may
// have closed what this one was about to read. stop returns how often that was.
func feeding(t testing.TB, w driver.Worker, take func([]*driver.Delivery)) (stop func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	unanswered := 0
	all.Go(func() {
		for ctx.Err() == nil {
			if err := w.Fetch(ctx, take); err != nil && ctx.Err() == nil {
				unanswered++
				t.Log("fed once more:", err)
				time.Sleep(50 * time.Millisecond)
			}
		}
	})
	stop = func() int { cancel(); all.Wait(); return unanswered }
	t.Cleanup(func() { stop() })
	return stop
}

// within returns a context that ends with patience: an engine tries for as long as it
// may.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// kind is that of the tests' jobs, unless there are several.
const kind = "k"

// rig is a Queue with a handler that records what ran. A test that has not failed leaves no handler behind.
type rig struct {
	*calls
	history
	engine driver.Engine
	lease  time.Duration // Longer where the engine answers so late that the lease would be lost again and again.
	opened time.Duration // How long it took to open the Queue, which has read the engine's clock meanwhile.
	stop   context.CancelFunc
	done   chan struct{}
}

// calls makes the calls of a Queue that must succeed, or fail in one way: any other answer ends the test. It reads the
// store by the Queue only, and knows no handler.
type calls struct {
	*durable.Queue
	t testing.TB
}

// history has the attempts that have begun, in the order of their begins. None is taken out.
type history struct {
	mu   sync.Mutex // guards runs
	runs []run
}

// run is one attempt that has begun.
type run struct {
	durable.Attempt
	at time.Time
}

// open returns a rig whose Queue does not run yet.
func open(t testing.TB, e driver.Engine, opts ...durable.Option) *rig {
	asked := time.Now()
	engineNow(t, e)
	r := &rig{calls: &calls{t: t}, engine: e, lease: max(shortLease(), 20*time.Since(asked))}
	var err error
	asked = time.Now()
	r.Queue, err = durable.Open(within(t), e, append([]durable.Option{durable.WithLease(r.lease)}, opts...)...)
	r.ok(err)
	r.opened = time.Since(asked)
	t.Cleanup(r.close)
	return r
}

// again returns after how long a job that has ended would run once more, if its end were not kept:
// when a lease on it would be over.
func (r *rig) again() time.Duration { return r.lease + time.Second }

// handle has f run jobs of the kind; nil succeeds at once.
func (r *rig) handle(kind string, f func(context.Context, *durable.Attempt) error) *rig {
	r.Handle(kind, func(ctx context.Context, a *durable.Attempt) error {
		now := time.Now()
		r.mu.Lock()
		r.runs = append(r.runs, run{Attempt: *a, at: now})
		r.mu.Unlock()
		if f == nil {
			return nil
		}
		return f(ctx, a)
	})
	return r
}

// start has the Queue run until drain or the end of the test.
func (r *rig) start() *rig {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	r.stop, r.done = cancel, done
	go func() {
		defer close(done)
		err := r.Run(ctx)
		if m, ok := r.engine.(*mortal); ok && m.life.Err() != nil {
			assert.ErrorIs(r.t, err, durable.ErrClosed)
		} else if ctx.Err() == nil {
			assert.NoError(r.t, err)
		}
	}()
	return r
}

func (r *rig) drain() {
	if r.stop != nil {
		r.stop()
		<-r.done
		r.stop = nil
	}
}

// close waits for the handlers, but not of a test that has failed: nobody may let them go
// on.
func (r *rig) close() {
	if r.t.Failed() {
		if r.stop != nil {
			r.stop()
		}
		go r.Close()
		return
	}
	r.drain()
	r.Close()
}

// add adds jobs that must be accepted.
func (c *calls) add(jobs ...durable.Job) []durable.Ref {
	refs, err := c.AddMany(within(c.t), jobs...)
	c.ok(err)
	return refs
}

// addMany adds n jobs that are alike, a thousand in a call.
func (c *calls) addMany(n int, job durable.Job) (refs []durable.Ref) {
	for some := range slices.Chunk(times(n, job), 1000) {
		refs = append(refs, c.add(some...)...)
	}
	return refs
}

// addExpiring adds jobs that expire so long after now, and returns when. If a slow machine adds them later than
// that, they are refused, and get twice as long.
func (r *rig) addExpiring(ahead time.Duration, jobs ...durable.Job) ([]durable.Ref, time.Time) {
	for ; ; ahead *= 2 {
		expires := r.now().Add(ahead)
		for i := range jobs {
			jobs[i].Expires = expires
		}
		refs, err := r.AddMany(within(r.t), jobs...)
		if !errors.Is(err, durable.ErrInvalid) {
			r.ok(err)
			return refs, expires
		}
	}
}

// times returns n jobs that are alike.
func times(n int, job durable.Job) []durable.Job { return slices.Repeat([]durable.Job{job}, n) }

// spread returns n jobs, the first due after some time, and each of the others a step later.
func spread(n int, first, step time.Duration) []durable.Job {
	jobs := times(n, durable.Job{Kind: kind})
	for i := range jobs {
		jobs[i].After = first + time.Duration(i)*step
	}
	return jobs
}

var errTest = errors.New("not this time")

func atoi(t testing.TB, b []byte) int {
	n, err := strconv.Atoi(string(b))
	require.NoError(t, err)
	return n
}

// backoff is the option that each attempt comes so long after the failure of the last.
func backoff(d time.Duration) durable.Option {
	return durable.WithBackoff(func(int) time.Duration { return d })
}

// A handler is what a rig handles a kind with.
type handler = func(context.Context, *durable.Attempt) error

// fails is a handler that returns an error.
func fails(err error) handler { return func(context.Context, *durable.Attempt) error { return err } }

// sleeps is a handler that takes so long.
func sleeps(d time.Duration) handler {
	return func(context.Context, *durable.Attempt) error { time.Sleep(d); return nil }
}

// waits is a handler that returns when a channel is closed, or has something for it.
func waits[T any](release <-chan T) handler {
	return func(context.Context, *durable.Attempt) error { <-release; return nil }
}

// tells is a handler that says when it has begun, and waits.
func tells[T any](begun chan<- bool, release <-chan T) handler {
	return func(context.Context, *durable.Attempt) error {
		begun <- true
		<-release
		return nil
	}
}

// returns is a handler that returns these errors, one in each attempt, and then nil.
func returns(errs ...error) handler {
	ch := make(chan error, len(errs))
	defer close(ch)
	for _, err := range errs {
		ch <- err
	}
	return answers(ch)
}

// answers is a handler that returns what comes from a channel.
func answers(ch <-chan error) handler {
	return func(context.Context, *durable.Attempt) error { return <-ch }
}

// lookup returns the job that has a key; there must be one.
func (c *calls) lookup(key string) durable.Info { return c.info(c.Lookup(within(c.t), key)) }

// refuses adds a job, which must fail with an error.
func (c *calls) refuses(j durable.Job, want error) {
	ref, err := c.Add(within(c.t), j)
	require.ErrorIs(c.t, err, want)
	require.Empty(c.t, ref)
}

// now is the engine's time.
func (r *rig) now() time.Time { return engineNow(r.t, r.engine) }

// isGone checks that Get does not find a job.
func (c *calls) isGone(ref durable.Ref) {
	_, err := c.Get(within(c.t), ref)
	require.ErrorIs(c.t, err, durable.ErrNotFound)
}

// ok checks that a call has succeeded.
func (c *calls) ok(err error) { require.NoError(c.t, err) }

// is checks that a call has succeeded, and returns its answer.
func (c *calls) is(answer bool, err error) bool {
	c.ok(err)
	return answer
}

// info is the same for a call that returns a job.
func (c *calls) info(info durable.Info, err error) durable.Info {
	c.ok(err)
	return info
}

func (c *calls) redrive(ref durable.Ref) { c.ok(c.Redrive(within(c.t), ref)) }

func (c *calls) delete(ref durable.Ref) { c.ok(c.Delete(within(c.t), ref)) }

// lacks checks that no job has a key.
func (c *calls) lacks(key string) {
	_, err := c.Lookup(within(c.t), key)
	require.ErrorIs(c.t, err, durable.ErrNotFound)
}

// get returns a job that must be there.
func (c *calls) get(ref durable.Ref) durable.Info { return c.info(c.Get(within(c.t), ref)) }

// cancels reports whether a Cancel has canceled the job.
func (c *calls) cancels(ref durable.Ref) bool { return c.is(c.Cancel(within(c.t), ref)) }

func (c *calls) cancel(ref durable.Ref, want bool, when string) {
	require.Equal(c.t, want, c.cancels(ref), when)
}

// cancelAll cancels jobs, which must wait.
func (c *calls) cancelAll(refs []durable.Ref) {
	for _, ref := range refs {
		c.cancel(ref, true, "it waits")
	}
}

// cancelsKey reports whether a CancelKey has canceled a job.
func (c *calls) cancelsKey(key string) bool { return c.is(c.CancelKey(within(c.t), key)) }

func (c *calls) cancelKey(key string, want bool) { require.Equal(c.t, want, c.cancelsKey(key)) }

// moves reports whether a Reschedule has moved the job.
func (c *calls) moves(ref durable.Ref, at time.Time) bool {
	return c.is(c.Reschedule(within(c.t), ref, at))
}

func (c *calls) reschedule(ref durable.Ref, at time.Time, want bool) {
	require.Equal(c.t, want, c.moves(ref, at))
}

// limit sets a limit.
func (c *calls) limit(name string, l durable.Limit) { c.ok(c.SetLimit(within(c.t), name, l)) }

// unlimit deletes a limit.
func (c *calls) unlimit(name string) { c.ok(c.DeleteLimit(within(c.t), name)) }

func (c *calls) pause(what durable.Pausable) { c.ok(c.Pause(within(c.t), what)) }

func (c *calls) resume(what durable.Pausable) { c.ok(c.Resume(within(c.t), what)) }

func (c *calls) schedule(name, spec string, job durable.Job, opts ...durable.ScheduleOption) {
	c.ok(c.SetSchedule(within(c.t), name, spec, job, opts...))
}

// matching returns the jobs that a filter finds.
func (c *calls) matching(f durable.Filter) (infos []durable.Info) {
	for info, err := range c.All(within(c.t), f) {
		c.ok(err)
		require.True(c.t, f.Match(info))
		infos = append(infos, info)
	}
	return infos
}

// eachOnce checks that no job has begun twice, and returns those that have begun since so many
// attempts. An attempt whose lease was lost, on a machine that stood still, may be repeated.
func eachOnce(t testing.TB, since int, rigs ...*rig) map[durable.Ref]bool {
	lost := int64(0)
	for _, r := range rigs {
		lost += r.Stats().LeaseLost
	}
	seen := map[durable.Ref]bool{}
	for _, run := range ran(rigs...)[since:] {
		if seen[run.Ref] {
			lost--
			require.GreaterOrEqual(t, lost, int64(0), "twice")
		}
		seen[run.Ref] = true
	}
	return seen
}

// ranOnce waits until n jobs have run, and checks that none runs again, and that nothing is kept. It
// returns the jobs.
func ranOnce(t testing.TB, n int, rigs ...*rig) map[durable.Ref]bool {
	for least := n; len(eachOnce(t, 0, rigs...)) < n; least++ { // some may have been repeated
		awaitRuns(t, least, rigs...)
	}
	time.Sleep(rigs[0].again())
	empty(t, rigs[0])
	seen := eachOnce(t, 0, rigs...)
	require.Len(t, seen, n)
	return seen
}

// empty checks that nothing is kept.
func empty(t testing.TB, r *rig) {
	await(t, "nothing is kept", func() bool {
		infos := r.matching(durable.Filter{})
		if len(infos) > 0 {
			t.Logf("still there: %+v", infos[0])
		}
		return len(infos) == 0
	})
}

// ranOf returns the attempts of a schedule.
func (r *history) ranOf(schedule string) []run {
	return slices.DeleteFunc(r.ran(), func(run run) bool { return run.Schedule != schedule })
}

func (r *history) ran() []run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]run(nil), r.runs...)
}

// numbers returns the numbers of attempts.
func numbers(runs []run) (all []int) {
	for _, run := range runs {
		all = append(all, run.Number)
	}
	return all
}

// ran returns the attempts of several rigs that have begun.
func ran(rigs ...*rig) (all []run) {
	for _, r := range rigs {
		all = append(all, r.ran()...)
	}
	return all
}

// await waits until cond holds. The longer that takes, the less often it looks.
func await(t testing.TB, what string, cond func() bool) {
	for began := time.Now(); !cond(); {
		waited := time.Since(began)
		if waited > patience {
			require.FailNow(t, fmt.Sprintf("after %v still not: %s", patience, what))
		}
		time.Sleep(min(max(waited/8, 2*time.Millisecond), 50*time.Millisecond))
	}
}

// atOnce calls f with each number below n at once, and waits until all have returned.
func atOnce(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// breathe is a pause in a loop: in a bubble no time passes without one.
func breathe() { time.Sleep(time.Millisecond) }

// awaitRuns waits until so many attempts of several rigs have begun.
func awaitRuns(t testing.TB, n int, rigs ...*rig) []run {
	for had := 0; had < n; had = attempts(rigs...) { // as long as there is progress
		await(t, fmt.Sprintf("%d attempts after %d", n, had), func() bool { return attempts(rigs...) > had })
	}
	return ran(rigs...)
}

// attempts returns how many attempts of several rigs have begun.
func attempts(rigs ...*rig) (n int) {
	for _, r := range rigs {
		r.mu.Lock()
		n += len(r.runs)
		r.mu.Unlock()
	}
	return n
}

func (r *rig) awaitRuns(n int) []run { return awaitRuns(r.t, n, r) }

// awaitGone waits until the jobs are kept no longer.
func (c *calls) awaitGone(refs ...durable.Ref) {
	for _, ref := range refs {
		await(c.t, "the job is gone", func() bool {
			_, err := c.Get(within(c.t), ref)
			return errors.Is(err, durable.ErrNotFound)
		})
	}
}

// heldFor is for how long a job of whileHeld is held before it is claimed. It is short enough
// that no engine keeps the job elsewhere first.
const heldFor = 1400 * time.Millisecond

// holding returns the options of a Queue that whileHeld needs.
func holding() []durable.Option {
	return []durable.Option{durable.WithLease(4 * heldFor), durable.WithAhead(heldFor)}
}

// whileHeld calls f for a job that is handed out and not claimed yet, and returns the job for
// which f has returned true. A busy machine may be too late some times, but not always.
func (r *rig) whileHeld(f func(durable.Ref) bool) durable.Ref {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		await(r.t, "nothing is held", func() bool { return r.Stats().Held == 0 })
		ref := r.add(durable.Job{Kind: kind, After: heldFor})[0]
		await(r.t, "it is held, or it is too late", func() bool {
			_, err := r.Get(within(r.t), ref)
			return r.Stats().Held > 0 || errors.Is(err, durable.ErrNotFound)
		})
		if f(ref) {
			return ref
		}
	}
	require.FailNow(r.t, "handed out too late each time")
	return ""
}

// work returns a worker of the tests' kinds, with a change of its configuration or none.
func work(t testing.TB, e driver.Engine, name string, change ...func(*driver.WorkConfig)) driver.Worker {
	c := driver.WorkConfig{
		Name: name, Kinds: driver.NewKindSet([]string{kind, "later"}), Lease: shortLease(), Ahead: 500 * time.Millisecond,
		Retention: time.Hour, Notify: func(driver.Notice) {},
	}
	for _, f := range change {
		f(&c)
	}
	w, err := e.Work(within(t), c)
	require.NoError(t, err)
	return w
}

// crashing is a worker that a test drives by hand, and that may die without a word.
type crashing struct {
	driver.Worker
	t     testing.TB
	lease time.Duration
	held  chan *driver.Delivery
	late  atomic.Bool // it has lost its lease: the machine is too busy
	stop  context.CancelFunc
}

func newCrashing(t testing.TB, e driver.Engine, name string, change ...func(*driver.WorkConfig)) *crashing {
	c := &crashing{t: t, held: make(chan *driver.Delivery, 100)}
	c.Worker = work(t, e, name, append(slices.Clone(change), func(w *driver.WorkConfig) { c.lease = w.Lease })...)
	ctx, stop := context.WithCancel(context.Background())
	fed := feeding(t, c.Worker, func(hs []*driver.Delivery) {
		for _, h := range hs {
			select {
			case c.held <- h:
			case <-ctx.Done():
			}
		}
	})
	c.stop = func() { stop(); go fed() }
	t.Cleanup(stop)
	return c
}

// beating renews the worker's lease until the end of the test.
func (c *crashing) beating() *crashing {
	var heartbeats sync.WaitGroup
	heartbeats.Go(func() {
		for ctx := c.t.Context(); ctx.Err() == nil; time.Sleep(c.lease / 10) {
			if errors.Is(c.Heartbeat(ctx), durable.ErrLeaseLost) {
				c.late.Store(true)
			}
		}
	})
	c.t.Cleanup(heartbeats.Wait)
	return c
}

// take waits until the job is handed out.
func (c *crashing) take(ref durable.Ref) *driver.Delivery {
	return c.takeAll([]durable.Ref{ref})[0]
}

// takeAll waits until some jobs are handed out, and drops all others.
func (c *crashing) takeAll(refs []durable.Ref) (held []*driver.Delivery) {
	missing := map[durable.Ref]bool{}
	for _, ref := range refs {
		missing[ref] = true
	}
	for end := time.After(patience); len(missing) > 0; {
		select {
		case h := <-c.held:
			if missing[h.Ref] {
				held = append(held, h)
				delete(missing, h.Ref)
			}
		case <-end:
			require.FailNow(c.t, "not handed out")
		}
	}
	return held
}

// claim claims a job, exactly or not, as soon as it may.
func (c *crashing) claim(h *driver.Delivery, exact bool) driver.ClaimResult {
	h.Exact = exact
	return claimPatiently(c.t, c, h)
}

// granted claims a job exactly, which must be granted, and returns the number of the attempt.
func (c *crashing) granted(h *driver.Delivery) int {
	v := c.claim(h, true)
	require.Equal(c.t, driver.Granted, v.Status)
	return v.Attempt
}

// suspect takes a job that is a suspect after so many crashes, and claims it exactly, as that attempt.
func (c *crashing) suspect(ref durable.Ref, crashes, attempt int) *driver.Delivery {
	var h *driver.Delivery
	v := driver.ClaimResult{Status: driver.Gone}
	for v.Status == driver.Gone { // or it was handed out before it was moved
		h = c.take(ref)
		v = c.claim(h, false)
	}
	require.Equal(c.t, driver.ClaimResult{Status: driver.Suspect, Crashes: crashes}, v)
	require.Equal(c.t, attempt, c.granted(h))
	return h
}

// release gives a job back, to be handed out again after some time.
func (c *crashing) release(h *driver.Delivery, after time.Duration) {
	require.NoError(c.t, c.Release(within(c.t), []*driver.Delivery{h}, after))
}

// end ends a job, as soon as the engine answers.
func (c *crashing) end(h *driver.Delivery, end driver.End) {
	out := driver.Completion{Delivery: h, End: end, At: time.Now().Add(time.Hour), Error: "x"}
	await(c.t, "its end is stored", func() bool {
		err := c.Finish(within(c.t), []driver.Completion{out})[0]
		require.NotErrorIs(c.t, err, durable.ErrLeaseLost)
		return err == nil
	})
}

// guarded is an engine whose workers' calls, except Fetch and Close, go through guard. If guard returns an
// error, the worker has no answer.
type guarded struct {
	driver.Engine
	guard  func(method string, call func() error) error
	handed func([]*driver.Delivery) // Sees the jobs before the worker does; nil: nobody does.
}

type guardedWorker struct {
	driver.Worker
	e guarded
}

func (e guarded) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	w, err := e.Engine.Work(ctx, c)
	return guardedWorker{w, e}, err
}

func (w guardedWorker) Fetch(ctx context.Context, give func([]*driver.Delivery)) error {
	return w.Worker.Fetch(ctx, func(held []*driver.Delivery) {
		if w.e.handed != nil {
			w.e.handed(held)
		}
		give(held)
	})
}

func (w guardedWorker) Claim(ctx context.Context, held []*driver.Delivery) (results []driver.ClaimResult) {
	if w.e.guard("Claim", func() error { results = w.Worker.Claim(ctx, held); return nil }) != nil {
		return slices.Repeat([]driver.ClaimResult{{Status: driver.RetryLater, After: 10 * time.Millisecond}}, len(held))
	}
	return results
}

func (w guardedWorker) Finish(ctx context.Context, outs []driver.Completion) (errs []error) {
	if err := w.e.guard("Finish", func() error { errs = w.Worker.Finish(ctx, outs); return nil }); err != nil {
		return slices.Repeat([]error{err}, len(outs))
	}
	return errs
}

func (w guardedWorker) Release(ctx context.Context, held []*driver.Delivery, after time.Duration) error {
	return w.e.guard("Release", func() error { return w.Worker.Release(ctx, held, after) })
}

func (w guardedWorker) Heartbeat(ctx context.Context) error {
	return w.e.guard("Heartbeat", func() error { return w.Worker.Heartbeat(ctx) })
}

// mortal is an engine that dies with its process: no call reaches it any more, and its worker's claims
// never end. Others may take over at once, as after its lease.
type mortal struct {
	driver.Engine
	worker driver.Worker
	life   context.Context
	end    context.CancelFunc
}

func newMortal(e driver.Engine) *mortal {
	m := &mortal{Engine: e}
	m.life, m.end = context.WithCancel(context.Background())
	return m
}

func (m *mortal) Work(ctx context.Context, c driver.WorkConfig) (w driver.Worker, err error) {
	m.worker, err = m.Engine.Work(ctx, c)
	return m.worker, err
}

// kill is called by a handler.
func (m *mortal) kill() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = m.worker.Close(ctx)
	_ = m.Engine.Close()
	m.end()
}
