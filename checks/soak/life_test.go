package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// life is one wheel from New to its end, with the accounts of everything on it.
type life struct {
	soak  *soak
	shape shape
	pool  *pool.Pool // the executor, if it is a Pool
	w     *timingwheel.TimingWheel
	keyed *timingwheel.Keyed[int]
	mode  atomic.Value // of type mode
	armed sync.Map     // of *task: those of which a run is to come
	keys  [200]*task
	known [4000]atomic.Pointer[task] // one that is replaced is canceled, so that the wheel does not fill up

	begun    atomic.Bool   // set just before Stop or Shutdown is called
	over     chan struct{} // closed when begun is set
	quiet    atomic.Bool   // no more calls are made
	fromTask atomic.Bool   // the next task that runs stops the wheel

	// neverRoom says that the pool is closed before the end, so that a function that waits for room
	// stays pending until Stop, and Shutdown waits for it.
	neverRoom bool

	mu       sync.Mutex
	pending  []timingwheel.Pending // guarded by mu; what Stop handed back
	deadline time.Time             // of the one that settle calls

	refusals atomic.Int64 // calls that returned ErrTooManyPending
	panicked atomic.Int64 // functions, less the calls of the panic handler
}

// errOnPurpose is what functions panic with.
var errOnPurpose = errors.New("on purpose")

// mode is what a call of a task's function means. First the wheel runs the functions. When the
// wheel is gone, the soak calls those that were discarded, and then those that were handed back, to
// learn which they are.
type mode string

const (
	ran        mode = "ran"
	discarded  mode = "discarded"
	handedBack mode = "handed back"
)

// house makes wheels of these shapes that share an executor, uses them for d, and closes their
// accounts.
func (s *soak) house(d time.Duration, shapes ...shape) {
	var mu sync.Mutex
	var kept []func() // guarded by mu
	executor := newExecutor(shapes[0].executor, func(f func()) {
		mu.Lock()
		defer mu.Unlock()
		kept = append(kept, f)
	})
	p, isPool := executor.(*pool.Pool)
	closeEarly := isPool && rand.IntN(4) == 0 // functions that the wheels fire later find the pool full
	var wg sync.WaitGroup
	var lives []*life
	for _, shape := range shapes {
		l := &life{soak: s, shape: shape, pool: p, over: make(chan struct{})}
		l.neverRoom = closeEarly && shape.executor == "pool, waits"
		l.mode.Store(ran)
		l.w = timingwheel.New(shape.options(executor, l.handlePanic)...)
		l.keyed = timingwheel.NewKeyed[int](l.w)
		for n := range l.keys {
			l.keys[n] = l.newKey(n)
		}
		lives = append(lives, l)
		wg.Go(func() { l.live(d) })
	}
	if closeEarly {
		time.Sleep(d * 9 / 10)
		ends("Pool.Close", p.Close)
	}
	wg.Wait()
	if isPool {
		ends("Pool.Close", p.Close)
	}
	for _, l := range lives {
		l.mode.Store(discarded)
	}
	for _, f := range kept {
		f()
	}
	for _, l := range lives {
		l.settle()
	}
}

func (l *life) handlePanic(recovered any, stack []byte) {
	if recovered != errOnPurpose || len(stack) == 0 {
		l.violate("the panic handler got %v", recovered)
	}
	l.panicked.Add(-1)
}

func (l *life) violate(format string, args ...any) {
	l.soak.violate("%+v: "+format, append([]any{l.shape}, args...)...)
}

// live uses the wheel from several goroutines for d, ends it, and waits until nothing runs.
func (l *life) live(d time.Duration) {
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(l.calls)
	}
	for range 12 {
		wg.Go(func() {
			for !l.quiet.Load() {
				pick(waits...)(l, short())
			}
		})
	}
	time.Sleep(d)
	l.end()
	time.Sleep(rand.N(10 * time.Millisecond)) // calls on a stopped wheel
	l.quiet.Store(true)
	ends("a call", wg.Wait)
	ends("a task", func() {
		for l.w.Stats().Running > 0 {
			time.Sleep(time.Millisecond)
		}
	})
}

// end ends the wheel in one of several ways.
func (l *life) end() {
	l.begun.Store(true)
	close(l.over)
	switch rand.IntN(4) {
	case 0:
		l.shutdown()
	case 1: // by a task, if one runs soon
		l.fromTask.Store(true)
		for begin := time.Now(); l.fromTask.Load() && time.Since(begin) < 100*time.Millisecond; {
			time.Sleep(time.Millisecond)
		}
	case 2: // by several goroutines at once
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(l.stop)
		}
		wg.Go(func() { l.w.Shutdown(context.Background()) })
		wg.Wait()
	}
	l.stop()
}

// shutdown waits for everything that is pending, if none of it can be far off, and otherwise not
// for long.
func (l *life) shutdown() {
	if l.shape.farthest < time.Minute && !l.neverRoom {
		l.quiet.Store(true) // otherwise what is pending could be reset without end
		ends("Shutdown", func() { l.w.Shutdown(context.Background()) })
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pick(0, time.Millisecond, 100*time.Millisecond))
	defer cancel()
	l.w.Shutdown(ctx)
}

func (l *life) stop() {
	pending := l.w.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, pending...)
}

// settle closes the accounts, when nothing runs any more.
func (l *life) settle() {
	l.mode.Store(handedBack)
	for _, p := range l.pending {
		l.deadline = p.Deadline
		p.Func()
	}
	l.lost()
	c := l.accounts()
	if keys := l.keyed.Len(); c.Pending != 0 || l.w.Len() != 0 || keys != 0 {
		l.violate("stopped, but %d pending, %d keys", c.Pending, keys)
	}
	if panicked, refusals := l.panicked.Load(), l.refusals.Load(); panicked != 0 || l.shape.limit > 0 && c.Rejected != refusals {
		l.violate("%d panics not handled; %d refused, but Stats says %d", panicked, refusals, c.Rejected)
	}
}

// lost finds the tasks of which a run has not ended.
func (l *life) lost() {
	for key := range l.armed.Range {
		t := key.(*task)
		t.mu.Lock()
		if !t.unsure {
			l.violate("%s lost: due at %v, now is %v", t.kind, t.dues[0], time.Now())
		}
		t.mu.Unlock()
	}
}

func (l *life) accounts() timingwheel.Counts {
	c := l.w.Stats().Counts
	if c.Scheduled != c.Expired+c.Stopped+c.HandedBack+c.Pending || c.Pending < 0 {
		l.violate("the accounts are not even: %+v", c)
	}
	return c
}

// calls makes bursts of calls that do not wait, with a short sleep after each burst.
func (l *life) calls() {
	for !l.quiet.Load() {
		for range rand.IntN(64) {
			l.call()
		}
		time.Sleep(rand.N(2 * time.Millisecond))
	}
}

// call makes one random call.
func (l *life) call() {
	switch n := rand.IntN(100); {
	case n < 45:
		l.add()
	case n < 70:
		pick(l.keys[:]...).change()
	case n < 92:
		if t := l.known[rand.IntN(len(l.known))].Load(); t != nil {
			t.change()
		}
	case n < 99:
		l.accounts()
	case rand.IntN(40) == 0:
		l.w.Snapshot(0)
	}
}

// misbehave does something that a function may do. T is its task, or nil inside a job.
func (l *life) misbehave(t *task) {
	if l.fromTask.Load() && l.fromTask.CompareAndSwap(true, false) {
		l.stop()
		return
	}
	switch n := rand.IntN(32); {
	case n < 4:
		l.call()
	case n < 7 && t != nil:
		t.change()
	case n == 7 && l.shape.mayBlock():
		time.Sleep(rand.N(3 * time.Millisecond))
	case n == 8:
		runtime.Goexit()
	case n == 9 && l.shape.handler:
		l.panicked.Add(1)
		panic(errOnPurpose)
	}
}

func (l *life) delay() time.Duration {
	switch rand.IntN(10) {
	case 0:
		return -1
	case 1:
		return rand.N(l.shape.farthest)
	}
	return short()
}

// short returns a random delay of up to 33 ms.
func short() time.Duration { return rand.N(time.Duration(1 << (8 + rand.IntN(18)))) }

func (l *life) notEarly(kind string, at, due time.Time) {
	if at.Before(due) {
		l.violate("%s: %v early", kind, due.Sub(at))
	}
}

// refused checks that a call may have returned err, which is not nil.
func (l *life) refused(kind string, err error) {
	switch {
	case errors.Is(err, timingwheel.ErrTooManyPending) && l.shape.limit > 0:
		l.refusals.Add(1)
	case errors.Is(err, timingwheel.ErrStopped) && l.begun.Load():
	default:
		l.violate("%s: refused without reason: %v", kind, err)
	}
}
