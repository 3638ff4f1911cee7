package crashtest

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// begin is what the clock of each World shows first.
var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// patience is how long Advance waits in real time for handlers: a bound, and not a measure.
const patience = time.Minute

// World is one run of a [Scenario]: a store, its clock, and processes. Start and Advance are
// called by the scenario's own goroutine.
type World struct {
	// Queue is of a process that never crashes and runs no jobs, such as a web server: the
	// scenario adds and cancels jobs through it. A handler should use the Queue of its own process.
	Queue *durable.Queue

	t      *testing.T
	opts   []durable.Option
	clock  *memory.Clock
	store  *memory.Store
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // processes

	mu      sync.Mutex
	crash   *crash   // nil: none
	moments []moment // all so far
}

func open(t *testing.T, opts []durable.Option, c *crash) *World {
	t.Helper()
	w := &World{t: t, crash: c, clock: memory.NewClock(begin)}
	w.opts = append([]durable.Option{durable.WithLogger(slog.New(slog.DiscardHandler)), durable.WithBackoff(backoff)}, opts...)
	w.store = memory.New(w.clock)
	w.ctx, w.cancel = context.WithCancelCause(t.Context())
	var err error
	if w.Queue, err = durable.Open(w.ctx, w.store.Open(), w.opts...); err != nil {
		t.Fatalf("crashtest: %v", err)
	}
	return w
}

// backoff is the default one of durable, on average, without its random part.
func backoff(attempt int) time.Duration {
	return min(time.Second<<min(max(attempt, 1)-1, 12), time.Hour) * 3 / 4
}

func (w *World) close() {
	w.cancel(nil)
	w.wg.Wait()
	_ = w.Queue.Close() // of package memory, which has nothing to say
}

// Start starts a process. It calls setup, which sets handlers and schedules, and then runs the
// jobs of these kinds until the scenario returns. After each crash of the process setup is called
// again, on another goroutine, for the Queue of the next one. An error of setup fails the test.
func (w *World) Start(setup func(context.Context, *durable.Queue) error) {
	w.t.Helper()
	p, err := w.newProcess(setup)
	if err != nil {
		w.t.Fatalf("crashtest: Start: %v", err)
	}
	w.wg.Go(func() {
		for err == nil {
			if err = p.run(); err != nil || !p.gone.Load() {
				break
			}
			p, err = w.newProcess(setup)
		}
		w.cancel(err)
	})
}

// Advance moves the clock by d, from one time at which a job is due to the next, and
// waits at each until the jobs that are due have ended. It fails the test if they have
// not ended after a minute of real time, and panics if d is negative. See
// [memory.Clock.Advance].
func (w *World) Advance(d time.Duration) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	if err := w.clock.Advance(ctx, d); err != nil {
		w.t.Fatalf("crashtest: %v", err)
	}
}

// Now returns the virtual time: at first the beginning of 2026, UTC. Any goroutine may call it.
func (w *World) Now() time.Time { return w.clock.Now() }

// crashes notes a moment of an attempt, and reports whether the process crashes at it.
func (w *World) crashes(a *durable.Attempt, where string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, c := momentOf(a, w.clock.Now(), where), w.crash
	w.moments = append(w.moments, m)
	if c == nil || c.ref != "" || !c.is(m, len(w.moments)-1) {
		return false
	}
	c.ref, c.hit = a.Ref, m
	return true
}

// process is a Queue that runs jobs until it crashes, or the scenario has returned.
type process struct {
	w       *World
	engine  driver.Engine
	q       *durable.Queue
	running atomic.Pointer[call] // nil: no handler runs
	gone    atomic.Bool
}

func (w *World) newProcess(setup func(context.Context, *durable.Queue) error) (*process, error) {
	p := &process{w: w, engine: w.store.Open()}
	outermost := durable.WithMiddleware(durable.Middleware{Add: p.add, Handle: p.handle})
	opts := slices.Concat([]durable.Option{outermost}, w.opts, []durable.Option{durable.WithConcurrency(1)})
	var err error
	if p.q, err = durable.Open(w.ctx, &engine{p.engine, p}, opts...); err != nil {
		return nil, err
	}
	if err = setup(w.ctx, p.q); err != nil {
		_ = p.q.Close()
		return nil, err
	}
	return p, nil
}

// run returns nil after a crash, and when the scenario has returned.
func (p *process) run() error {
	defer context.AfterFunc(p.w.ctx, func() { _ = p.q.Close() })() // ends handlers that hang
	err := p.q.Run(p.w.ctx)
	_ = p.q.Close()
	if p.gone.Load() {
		return nil
	}
	return err
}

// kill ends the process: its engine stores nothing more, and others may take over what it has
// claimed.
func (p *process) kill() {
	p.gone.Store(true)
	_ = p.engine.Close()
}

var errGone = errors.New("crashtest: the process is gone")

// handle is the outermost middleware.
func (p *process) handle(next durable.Handler) durable.Handler {
	return func(ctx context.Context, a *durable.Attempt) error {
		p.settle()
		if p.gone.Load() { // the Queue has not noticed yet
			return errGone
		}
		if p.w.crashes(a, begins) {
			p.kill()
			return errGone
		}
		c := &call{p: p, a: a, ctx: ctx}
		p.running.Store(c)
		defer func() { // also after a panic, and after a crash
			p.running.Store(nil)
			if !c.committed.Load() && !p.gone.Load() && p.w.crashes(a, ends) {
				p.kill()
			}
		}()
		return c.do(next)
	}
}

// settle waits until the ends of earlier attempts are stored, so that a crash loses one.
func (p *process) settle() {
	for !p.gone.Load() && p.q.Stats().Ending > 0 {
		runtime.Gosched()
	}
}
