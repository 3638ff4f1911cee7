package main

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// life is one wheel from New to its end, with the accounts of everything on it.
type life struct {
	soak  *soak
	shape shape
	pool  *keptPool // nil: none
	w     *timingwheel.TimingWheel
	mode  atomic.Int32 // what a call of a task's function means

	armed     sync.Map // of *task: those of which a run is to come
	functions functions
	keys      keys
	ending    ending

	refusals  atomic.Int64 // calls that returned ErrTooManyPending
	panicked  atomic.Int64 // tasks and runs of jobs
	handled   atomic.Int64 // calls of the panic handler
	inFutures atomic.Int64 // functions of futures, whose panics the handler does not get
}

// errOnPurpose is what tasks panic with.
var errOnPurpose = errors.New("on purpose")

// The modes of a life. First the wheel runs the functions. When the wheel is gone, the
// soak calls those that were discarded, and then those that were handed back, to learn
// which they are.
const (
	running int32 = iota
	discarding
	handingBack
)

func (s *soak) newLife(sh shape, p *keptPool) *life {
	l := &life{soak: s, shape: sh, pool: p}
	opts := sh.options(p)
	if sh.handler {
		opts = append(opts, timingwheel.WithPanicHandler(l.handlePanic))
	}
	l.w = timingwheel.New(opts...)
	l.functions.life = l
	l.keys.life, l.keys.keyed = l, timingwheel.NewKeyed[int](l.w)
	l.ending.life, l.ending.over = l, make(chan struct{})
	s.total.wheels.Add(1)
	s.lives.Store(l, true)
	return l
}

func (l *life) handlePanic(recovered any, stack []byte) {
	if recovered != errOnPurpose || len(stack) == 0 {
		l.violate("the panic handler got %v", recovered)
	}
	l.handled.Add(1)
}

func (l *life) violate(format string, args ...any) {
	l.soak.violations.add("%v: "+format, append([]any{l.shape}, args...)...)
}

// live uses the wheel from several goroutines, ends it, and waits until nothing runs.
func (l *life) live(end time.Time) {
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { l.calls() })
	}
	for range 12 {
		wg.Go(func() { waiter{l}.waits() })
	}
	time.Sleep(time.Until(end))
	l.ending.end()
	time.Sleep(time.Duration(rand.IntN(10_000_000))) // calls on a stopped wheel
	l.ending.quiet.Store(true)
	wg.Wait()
	if !wait(func() bool { return l.w.Stats().Running == 0 }) {
		l.violate("%d tasks do not end\n%s", l.w.Stats().Running, stacks())
	}
}

// settle closes the accounts. The caller makes sure that nothing runs any more.
func (l *life) settle() {
	l.mode.Store(handingBack)
	l.ending.callHandedBack()
	c := l.checkAccounts()
	if keys := l.keys.keyed.Len(); c.Pending != 0 || l.w.Len() != 0 || keys != 0 {
		l.violate("stopped, but %d pending, %d keys", c.Pending, keys)
	}
	panicked, handled, inFutures := l.panicked.Load(), l.handled.Load(), l.inFutures.Load()
	if all := l.w.Stats().Panicked; panicked != handled || all != panicked+inFutures {
		l.violate("%d panics, %d handled, and %d in futures; Stats says %d", panicked, handled, inFutures, all)
	}
	// An AfterFunc or a Reset does not report that it was refused.
	if known, maybe := l.refusals.Load(), l.lost(); c.Rejected < known || c.Rejected > known+maybe {
		l.violate("refused %d, and perhaps %d, but Stats says %d", known, maybe, c.Rejected)
	}
	l.soak.lives.Delete(l)
}

// lost finds the runs that have not ended. It returns how many of them may have been
// refused; the others are violations.
func (l *life) lost() (maybe int64) {
	for key := range l.armed.Range {
		t := key.(*task)
		t.mu.Lock()
		if n := len(t.dues); n > t.maybe {
			l.violate("%s lost: due at %v, now is %v", t.kind, t.dues[0], l.soak.now())
		} else {
			maybe += int64(n)
			l.soak.total.refused.Add(int64(n))
		}
		t.mu.Unlock()
	}
	return maybe
}

func (l *life) checkAccounts() timingwheel.Counts {
	c := l.w.Stats().Counts
	if c.Scheduled != c.Expired+c.Stopped+c.HandedBack+c.Pending || c.Pending < 0 {
		l.violate("the accounts are not even: %+v", c)
	}
	return c
}

// calls makes bursts of calls that do not wait, with a short sleep after each burst.
func (l *life) calls() {
	for !l.ending.quiet.Load() {
		for range rand.IntN(64) {
			l.call()
		}
		time.Sleep(time.Duration(rand.IntN(2_000_000)))
		for l.w.Len() > 20_000 && !l.ending.quiet.Load() {
			l.functions.cancelSome()
			runtime.Gosched()
		}
	}
}

// call makes one random call.
func (l *life) call() {
	switch n := rand.IntN(100); {
	case n < 25:
		l.functions.schedule(l.delay())
	case n < 45:
		l.functions.afterFunc(l.delay())
	case n < 70:
		l.keys.call()
	case n < 80:
		l.functions.cancelSome()
	case n < 92:
		l.functions.resetSome(l.delay())
	case n < 99:
		l.checkAccounts()
	default:
		if n := rand.IntN(40); n == 0 {
			l.w.Snapshot(n)
		}
	}
}

// misbehave does something that a task may do. T is the task, or nil inside a job.
func (l *life) misbehave(t *task) {
	if l.ending.stopFromTask() {
		return
	}
	switch n := rand.IntN(32); n {
	case 0, 1:
		l.call()
	case 2:
		l.functions.schedule(l.delay())
	case 3, 4, 5:
		if t != nil {
			t.reset(l.delay(), true)
		}
	case 6:
		if l.shape.mayBlock() {
			time.Sleep(time.Duration(rand.IntN(3_000_000)))
		}
	case 7:
		runtime.Goexit()
	case 8:
		if l.shape.handler {
			l.panicked.Add(1)
			l.soak.total.panics.Add(1)
			panic(errOnPurpose)
		}
	case 9:
		l.functions.cancelSome()
	}
}

func (l *life) delay() time.Duration {
	switch rand.IntN(10) {
	case 0:
		return -1
	case 1:
		return time.Duration(rand.Int64N(int64(l.shape.farthest)))
	}
	return short()
}

// short returns a random delay of up to 33 ms.
func short() time.Duration { return time.Duration(rand.Int64N(1 << (8 + rand.IntN(18)))) }

func (l *life) notEarly(kind string, at, due time.Duration) {
	if at < due {
		l.violate("%s: %v early", kind, due-at)
	}
}

// refused checks that a call may have returned err, which is not nil.
func (l *life) refused(kind string, err error) {
	switch {
	case errors.Is(err, timingwheel.ErrTooManyPending) && l.shape.limit > 0:
		l.refusals.Add(1)
	case errors.Is(err, timingwheel.ErrStopped) && l.ending.begun.Load():
	default:
		l.violate("%s: refused without reason: %v", kind, err)
	}
}

// live makes wheels of these shapes, uses them until end, and closes their accounts. P is
// the Pool that they share, or nil.
func (s *soak) live(end time.Time, shapes []shape, p *keptPool) {
	var wg sync.WaitGroup
	var lives []*life
	// Functions that the wheels fire after an early Close find the pool full.
	closeEarly := p != nil && rand.IntN(4) == 0
	for _, shape := range shapes {
		l := s.newLife(shape, p)
		l.ending.neverRoom = closeEarly && shape.executor == poolWait
		lives = append(lives, l)
	}
	for _, l := range lives {
		wg.Go(func() { l.live(end) })
	}
	if closeEarly {
		time.Sleep(time.Until(end) * 9 / 10)
		p.close(&s.violations)
	}
	wg.Wait()
	if p != nil {
		if !closeEarly {
			p.close(&s.violations)
		}
		for _, l := range lives {
			l.mode.Store(discarding)
		}
		p.callDiscarded()
	}
	for _, l := range lives {
		l.settle()
	}
}
