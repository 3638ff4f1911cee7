package enginetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// work returns a worker of the tests' kinds, with a change of its configuration or none.
func work(t testing.TB, e driver.Engine, name string, change ...func(*driver.WorkConfig)) driver.Worker {
	c := driver.WorkConfig{
		Name: name, Kinds: driver.NewKindGate([]string{kind, "later"}), Lease: lease, Ahead: 500 * time.Millisecond,
		Retention: time.Hour, Tell: func(driver.Notice) {},
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
	t    testing.TB
	held chan *driver.Delivery
	late atomic.Bool // it has lost its lease: the machine is too busy
	stop context.CancelFunc
}

func newCrashing(t testing.TB, e driver.Engine, name string, change ...func(*driver.WorkConfig)) *crashing {
	w := work(t, e, name, change...)
	ctx, stop := context.WithCancel(context.Background())
	c := &crashing{Worker: w, t: t, held: make(chan *driver.Delivery, 100)}
	fed := feeding(t, w, func(hs []*driver.Delivery) {
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
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := c.Heartbeat(ctx); errors.Is(err, durable.ErrLeaseLost) {
				c.late.Store(true)
			}
			time.Sleep(lease / 10)
		}
	}()
	c.t.Cleanup(func() { stop(); <-done })
	return c
}

// take waits until the job is handed out.
func (c *crashing) take(ref durable.Ref) *driver.Delivery {
	c.t.Helper()
	return c.takeAll([]durable.Ref{ref})[0]
}

// takeAll waits until some jobs are handed out, and drops all others.
func (c *crashing) takeAll(refs []durable.Ref) (held []*driver.Delivery) {
	c.t.Helper()
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
	c.t.Helper()
	h.Exact = exact
	return claimPatiently(c.t, c, h)
}

// granted claims a job exactly, which must be granted, and returns the number of the attempt.
func (c *crashing) granted(h *driver.Delivery) int {
	c.t.Helper()
	v := c.claim(h, true)
	require.Equal(c.t, driver.Granted, v.Status)
	return v.Attempt
}

// suspect takes a job that is a suspect after so many crashes, and claims it exactly, as that attempt.
func (c *crashing) suspect(ref durable.Ref, crashes, attempt int) *driver.Delivery {
	c.t.Helper()
	h := c.take(ref)
	v := c.claim(h, false)
	for v.Status == driver.Gone { // it was handed out before it was moved
		h = c.take(ref)
		v = c.claim(h, false)
	}
	require.Equal(c.t, driver.ClaimResult{Status: driver.Suspect, Crashes: crashes}, v)
	require.Equal(c.t, attempt, c.granted(h))
	return h
}

// release gives a job back, to be handed out again after some time.
func (c *crashing) release(h *driver.Delivery, after time.Duration) {
	c.t.Helper()
	require.NoError(c.t, c.Release(within(c.t), []*driver.Delivery{h}, after))
}

// end ends a job, as soon as the engine answers.
func (c *crashing) end(h *driver.Delivery, end driver.End) {
	c.t.Helper()
	finishPatiently(c.t, c, driver.Completion{Delivery: h, End: end, At: time.Now().Add(time.Hour), Error: "x"})
}

// wrapped is an engine whose workers are wrapped.
type wrapped struct {
	driver.Engine
	wrap func(driver.Worker) driver.Worker
}

func (e wrapped) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	w, err := e.Engine.Work(ctx, c)
	if err != nil {
		return nil, err
	}
	return e.wrap(w), nil
}

// guarded is a worker whose calls, except Fetch, go through guard. If guard returns an error, it has
// not made the call.
type guarded struct {
	driver.Worker
	guard func(call func() error) error
}

func (w guarded) Claim(ctx context.Context, held []*driver.Delivery) []driver.ClaimResult {
	results := slices.Repeat([]driver.ClaimResult{{After: time.Second}}, len(held))
	w.guard(func() error { results = w.Worker.Claim(ctx, held); return nil })
	return results
}

func (w guarded) Finish(ctx context.Context, outs []driver.Completion) (errs []error) {
	if err := w.guard(func() error { errs = w.Worker.Finish(ctx, outs); return nil }); err != nil {
		return slices.Repeat([]error{err}, len(outs))
	}
	return errs
}

func (w guarded) Release(ctx context.Context, held []*driver.Delivery, after time.Duration) error {
	return w.guard(func() error { return w.Worker.Release(ctx, held, after) })
}

func (w guarded) Heartbeat(ctx context.Context) error {
	return w.guard(func() error { return w.Worker.Heartbeat(ctx) })
}

func (w guarded) Close(ctx context.Context) error {
	return w.guard(func() error { return w.Worker.Close(ctx) })
}

// stopped makes the calls of an engine wait while it is stopped, like the calls of a process that is
// frozen or cut off.
type stopped struct {
	calls chan struct{} // Calls that are under way; full: stopped.
}

// stop returns when no call is under way. It does what a lock would, which synctest knows
// nothing of.
func (e *stopped) stop() {
	for range cap(e.calls) {
		e.calls <- struct{}{}
	}
}

func (e *stopped) goOn() {
	for range cap(e.calls) {
		<-e.calls
	}
}

// make makes a call when the engine is not stopped.
func (e *stopped) make(call func() error) error {
	e.calls <- struct{}{}
	defer func() { <-e.calls }()
	return call()
}

// wrap delays the claims of a worker before and after: the result arrives when the stop has ended.
func (e *stopped) wrap(w driver.Worker) driver.Worker {
	return stoppedWorker{guarded{w, e.make}, e}
}

type stoppedWorker struct {
	guarded
	e *stopped
}

func (w stoppedWorker) Fetch(ctx context.Context, give func([]*driver.Delivery)) error {
	return w.Worker.Fetch(ctx, func(held []*driver.Delivery) {
		w.e.make(func() error { give(held); return nil })
	})
}

// mortal is an engine that dies with its process: its worker's claims never end, and no
// call reaches it any more. Others may take over at once, as after its lease.
type mortal struct {
	driver.Engine
	died chan struct{}
	die  sync.Once

	mu     sync.Mutex
	worker driver.Worker
}

type mortalWorker struct {
	guarded
	e *mortal
}

func newMortal(e driver.Engine) *mortal { return &mortal{Engine: e, died: make(chan struct{})} }

// kill is called by a handler. It returns when nothing reaches the engine any more.
func (e *mortal) kill() {
	e.die.Do(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		close(e.died)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		e.worker.Close(ctx)
	})
}

// alive calls f, unless the process is dead; it cannot die meanwhile.
func (e *mortal) alive(f func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.died:
		return durable.ErrClosed
	default:
		return f()
	}
}

func (e *mortal) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	w, err := e.Engine.Work(ctx, c)
	e.worker = w
	return mortalWorker{guarded{w, e.alive}, e}, err
}

func (w mortalWorker) Fetch(ctx context.Context, give func([]*driver.Delivery)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.e.died:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := w.Worker.Fetch(ctx, give); err != nil {
		return err
	}
	return w.e.alive(func() error { return nil })
}
