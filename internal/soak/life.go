package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// life is that of a wheel, from New to its end, with the accounts of all that is on it.
type life struct {
	soak  *soak
	shape shape
	w     *timingwheel.TimingWheel
	keyed *timingwheel.Keyed[int]
	keys  [200]key

	ledger  ledger
	mode    atomic.Int32  // what a call of a task's function means
	ending  atomic.Bool   // Stop or Shutdown have been called, or are just about to be
	over    chan struct{} // is closed then
	ended   atomic.Bool   // no more calls
	stopper atomic.Bool   // the next task to run is to stop the wheel

	mu       sync.Mutex
	tasks    []*task               // some that others may cancel and reset
	jobs     []*job                // that have not been stopped
	pending  []timingwheel.Pending // handed back
	deadline time.Duration         // of the one that is being handed back

	waiting atomic.Int64   // futures
	waiters sync.WaitGroup // for futures

	refused  atomic.Int64 // with ErrTooManyPending
	panicked atomic.Int64 // functions of ours, futures apart
	handled  atomic.Int64 // by the panic handler
	futures  atomic.Int64 // that panicked
}

// What a call of a task's function means. The wheel has it run; and when the wheel is
// gone, the soak calls those that were discarded, and those that were handed back, to
// learn which they are.
const (
	running int32 = iota
	discarding
	handingBack
)

func (s *soak) newLife(sh shape, p *pool) *life {
	l := &life{soak: s, shape: sh, over: make(chan struct{})}
	opts := []timingwheel.Option{timingwheel.WithTick(sh.tick), timingwheel.WithWheelSize(sh.size),
		timingwheel.WithShards(sh.shards), timingwheel.WithMaxPending(sh.limit)}
	switch sh.executor {
	case "":
	case "inline":
		opts = append(opts, timingwheel.WithExecutor(timingwheel.Inline()))
	case "func":
		opts = append(opts, timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) { task() })))
	case "go":
		opts = append(opts, timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) { go task() })))
	default:
		opts = append(opts, timingwheel.WithExecutor(p.Pool))
	}
	if sh.handler {
		opts = append(opts, timingwheel.WithPanicHandler(l.handle))
	}
	if sh.precise {
		opts = append(opts, timingwheel.WithPreciseWakeups())
	}
	l.w = timingwheel.New(opts...)
	l.keyed = timingwheel.NewKeyed[int](l.w)
	s.wheels.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives[l] = true
	return l
}

func (l *life) violate(format string, args ...any) {
	l.soak.violations.add("%v: "+format, append([]any{l.shape}, args...)...)
}

var errOnPurpose = errors.New("on purpose")

func (l *life) handle(recovered any, stack []byte) {
	if recovered != errOnPurpose || len(stack) == 0 {
		l.violate("the panic handler got %v", recovered)
	}
	l.handled.Add(1)
}

// live uses the wheel from several goroutines, ends it, and waits until nothing runs.
func (l *life) live(end time.Time) {
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { l.calls() })
	}
	for range 4 {
		wg.Go(func() { l.waits() })
	}
	time.Sleep(time.Until(end))
	l.end()
	time.Sleep(time.Duration(rand.IntN(10_000_000))) // calls go on
	l.ended.Store(true)
	wg.Wait()
	if !wait(func() bool { return l.w.Stats().Running == 0 }) {
		l.violate("%d tasks do not end\n%s", l.w.Stats().Running, stacks())
	}
	l.finish()
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		l.waiters.Wait()
	}()
	select {
	case <-waited:
	case <-time.After(patience):
		l.violate("%d futures have no result\n%s", l.waiting.Load(), stacks())
	}
}

// end ends the wheel by one of its ways.
func (l *life) end() {
	l.ending.Store(true)
	close(l.over)
	switch rand.IntN(4) {
	case 0: // all that is pending, unless that is too far off
		patient := l.shape.farthest < time.Minute
		limit := pick(0, time.Millisecond, 100*time.Millisecond)
		if patient {
			limit = patience
			l.ended.Store(true) // or else what is pending could be reset for ever
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := l.w.Shutdown(ctx); err != nil && patient {
			l.violate("Shutdown: %v\n%s", err, stacks())
		}
	case 1: // from inside a task, if one runs soon
		l.stopper.Store(true)
		for range 100 {
			time.Sleep(time.Millisecond)
			if !l.stopper.Load() {
				break
			}
		}
	case 2: // several at once
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(l.stop)
		}
		wg.Go(func() { l.w.Shutdown(context.Background()) })
		wg.Wait()
	}
	l.stop()
}

func (l *life) stop() {
	pending := l.w.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, pending...)
}

// settle closes the accounts. By now nothing runs any more.
func (l *life) settle() {
	l.mode.Store(handingBack)
	l.mu.Lock()
	pending := l.pending
	l.mu.Unlock()
	for _, p := range pending {
		l.deadline = p.Deadline.Sub(l.soak.begin)
		p.Func()
	}
	c := l.checkAccounts()
	if c.Pending != 0 || l.w.Len() != 0 || l.keyed.Len() != 0 {
		l.violate("stopped, but %d pending, %d keys", c.Pending, l.keyed.Len())
	}
	n, m, futures := l.panicked.Load(), l.handled.Load(), l.futures.Load()
	if all := l.w.Stats().Panicked; n != m || all != n+futures {
		l.violate("%d panics, %d handled, and %d in futures; Stats says %d", n, m, futures, all)
	}
	left := l.lost()
	if known := l.refused.Load(); c.Rejected < known || c.Rejected > known+left {
		l.violate("refused %d, and perhaps %d, but Stats says %d", known, left, c.Rejected)
	}
	l.soak.forget(l, c)
}

// lost finds the tasks that have not ended, and returns how many runs may rather have
// been refused.
func (l *life) lost() (maybe int64) {
	for _, t := range l.ledger.left() {
		t.mu.Lock()
		if n := len(t.dues); n > t.maybe {
			l.violate("%s lost: due at %v, now is %v", t.kind, t.dues[0], l.soak.now())
		} else {
			maybe += int64(n)
			l.soak.refused.Add(int64(n))
		}
		t.mu.Unlock()
	}
	return maybe
}

func (s *soak) forget(l *life, c timingwheel.Counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lives, l)
	s.counts.Scheduled += c.Scheduled
	s.counts.Fired += c.Fired
	s.counts.Canceled += c.Canceled
	s.counts.HandedBack += c.HandedBack
	s.counts.Reset += c.Reset
	s.counts.Rejected += c.Rejected
}

func (l *life) checkAccounts() timingwheel.Counts {
	c := l.w.Stats().Counts
	if c.Scheduled != c.Fired+c.Canceled+c.HandedBack+c.Pending || c.Pending < 0 {
		l.violate("the accounts are not even: %+v", c)
	}
	return c
}

// calls calls what does not wait, in bursts, with time to breathe between.
func (l *life) calls() {
	for !l.ended.Load() {
		for range rand.IntN(64) {
			l.call()
		}
		time.Sleep(time.Duration(rand.IntN(2_000_000)))
		for l.w.Len() > 20_000 && !l.ended.Load() {
			if t := l.some(); t != nil {
				t.cancel()
			}
			runtime.Gosched()
		}
	}
}

func (l *life) call() {
	switch n := rand.IntN(100); {
	case n < 25:
		l.schedule(l.delay())
	case n < 45:
		l.afterFunc(l.delay())
	case n < 70:
		l.key()
	case n < 80:
		if t := l.some(); t != nil {
			t.cancel()
		}
	case n < 92:
		if t := l.some(); t != nil {
			t.reset(l.delay(), false)
		}
	case n < 94:
		l.job()
	case n < 98:
		l.future()
	case n < 99:
		l.checkAccounts()
	default:
		if n := rand.IntN(40); n == 0 {
			l.w.Snapshot(n)
		}
	}
}

func (l *life) delay() time.Duration {
	switch rand.IntN(10) {
	case 0:
		return -1
	case 1:
		return time.Duration(rand.Int64N(int64(l.shape.farthest)))
	}
	return time.Duration(rand.Int64N(1 << (8 + rand.IntN(18)))) // up to 33 ms
}

func (l *life) some() *task {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tasks) == 0 {
		return nil
	}
	return l.tasks[rand.IntN(len(l.tasks))]
}

func (l *life) keep(t *task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tasks) < 1000 {
		l.tasks = append(l.tasks, t)
	} else {
		l.tasks[rand.IntN(len(l.tasks))] = t
	}
}
