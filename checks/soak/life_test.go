package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// life is one wheel from New to its end, with the accounts of everything on it.
type life struct {
	soak  *soak
	shape shape
	pool  *keptPool // nil: none
	w     *timingwheel.TimingWheel
	mode  atomic.Int32 // what a call of a task's function means
	armed sync.Map     // of *task: those of which a run is to come
	known [200]atomic.Pointer[task]
	keyed *timingwheel.Keyed[int]
	keys  [200]key

	begun    atomic.Bool   // set just before Stop or Shutdown is called
	over     chan struct{} // closed when begun is set
	quiet    atomic.Bool   // no more calls are made
	fromTask atomic.Bool   // the next task that runs stops the wheel

	// neverRoom says that the pool is closed before the end, so that a function that waits for room
	// stays pending until Stop, and Shutdown waits for it.
	neverRoom bool

	mu       sync.Mutex
	pending  []timingwheel.Pending // guarded by mu; what Stop handed back
	deadline time.Duration         // of the one that is called

	refusals  atomic.Int64 // calls that returned ErrTooManyPending
	panicked  atomic.Int64 // tasks and runs of jobs
	handled   atomic.Int64 // calls of the panic handler
	inFutures atomic.Int64 // functions of futures, whose panics the handler does not get
}

// errOnPurpose is what functions panic with.
var errOnPurpose = errors.New("on purpose")

// The modes of a life. First the wheel runs the functions. When the wheel is gone, the soak calls
// those that were discarded, and then those that were handed back, to learn which they are.
const (
	running int32 = iota
	discarding
	handingBack
)

// live makes wheels of these shapes, uses them until end, and closes their accounts. P is the Pool
// that they share, or nil.
func (s *soak) live(end time.Time, p *keptPool, shapes ...shape) {
	var wg sync.WaitGroup
	var lives []*life
	closeEarly := p != nil && rand.IntN(4) == 0 // functions that the wheels fire later find the pool full
	for _, shape := range shapes {
		l := &life{soak: s, shape: shape, pool: p, over: make(chan struct{}), neverRoom: closeEarly && shape.executor == poolWait}
		l.w = timingwheel.New(shape.options(p, l.handlePanic)...)
		l.keyed = timingwheel.NewKeyed[int](l.w)
		s.lives.Store(l, true)
		lives = append(lives, l)
		wg.Go(func() { l.live(end) })
	}
	if closeEarly {
		time.Sleep(time.Until(end) * 9 / 10)
		p.end(s)
	}
	wg.Wait()
	if p != nil {
		p.end(s)
		for _, l := range lives {
			l.mode.Store(discarding)
		}
		for _, f := range p.kept {
			f()
		}
	}
	for _, l := range lives {
		l.settle()
	}
}

func (l *life) handlePanic(recovered any, stack []byte) {
	if recovered != errOnPurpose || len(stack) == 0 {
		l.violate("the panic handler got %v", recovered)
	}
	l.handled.Add(1)
}

func (l *life) violate(format string, args ...any) {
	l.soak.violate("%v: "+format, append([]any{l.shape}, args...)...)
}

// live uses the wheel from several goroutines, ends it, and waits until nothing runs.
func (l *life) live(end time.Time) {
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(l.calls)
	}
	for range 12 {
		wg.Go(l.waits)
	}
	time.Sleep(time.Until(end))
	l.end()
	time.Sleep(rand.N(10 * time.Millisecond)) // calls on a stopped wheel
	l.quiet.Store(true)
	wg.Wait()
	if !wait(func() bool { return l.w.Stats().Running == 0 }) {
		l.violate("%d tasks do not end\n%s", l.w.Stats().Running, stacks())
	}
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
	patient := l.shape.farthest < time.Minute && !l.neverRoom
	limit := pick(0, time.Millisecond, 100*time.Millisecond)
	if patient {
		limit = patience
		l.quiet.Store(true) // otherwise what is pending could be reset without end
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := l.w.Shutdown(ctx); err != nil && patient {
		l.violate("Shutdown: %v\n%s", err, stacks())
	}
}

func (l *life) stop() {
	pending := l.w.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, pending...)
}

// settle closes the accounts, when nothing runs any more.
func (l *life) settle() {
	l.mode.Store(handingBack)
	for _, p := range l.pending {
		l.deadline = p.Deadline.Sub(l.soak.begin)
		p.Func()
	}
	c := l.accounts()
	if keys := l.keyed.Len(); c.Pending != 0 || l.w.Len() != 0 || keys != 0 {
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

// lost finds the runs that have not ended. It returns how many of them may have been refused; the
// others are violations.
func (l *life) lost() (maybe int64) {
	for key := range l.armed.Range {
		t := key.(*task)
		t.mu.Lock()
		if n := len(t.dues); n > t.maybe {
			l.violate("%s lost: due at %v, now is %v", t.kind, t.dues[0], l.soak.now())
		} else {
			maybe += int64(n)
		}
		t.mu.Unlock()
	}
	return maybe
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
		for l.w.Len() > 20_000 && !l.quiet.Load() {
			l.changeSome((*task).cancel)
			runtime.Gosched()
		}
	}
}

// call makes one random call.
func (l *life) call() {
	switch n := rand.IntN(100); {
	case n < 45:
		l.schedule(l.delay())
	case n < 70:
		l.callKeyed()
	case n < 80:
		l.changeSome((*task).cancel)
	case n < 92:
		l.changeSome(func(t *task) { t.reset(l.delay(), false) })
	case n < 99:
		l.accounts()
	case rand.IntN(40) == 0:
		l.w.Snapshot(0)
	}
}

// changeSome changes one of the tasks that are known, if there is one yet.
func (l *life) changeSome(change func(*task)) {
	if t := l.known[rand.IntN(len(l.known))].Load(); t != nil {
		change(t)
	}
}

// misbehave does something that a function may do. T is its task, or nil inside a job.
func (l *life) misbehave(t *task) {
	if l.fromTask.Load() && l.fromTask.CompareAndSwap(true, false) {
		l.stop()
		return
	}
	switch n := rand.IntN(32); {
	case n < 3:
		l.call()
	case n < 6 && t != nil:
		t.reset(l.delay(), true)
	case n == 6 && l.shape.mayBlock():
		time.Sleep(rand.N(3 * time.Millisecond))
	case n == 7:
		runtime.Goexit()
	case n == 8 && l.shape.handler:
		l.panicked.Add(1)
		panic(errOnPurpose)
	case n == 9:
		l.changeSome((*task).cancel)
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
	case errors.Is(err, timingwheel.ErrStopped) && l.begun.Load():
	default:
		l.violate("%s: refused without reason: %v", kind, err)
	}
}

// task is a function that can be armed any number of times. Each time it must end in exactly one
// way: it runs, or it is canceled, handed back, discarded or refused.
//
// Every call that arms or disarms a task is made with its mutex held, and its function takes the
// mutex before it does anything else. So the result of the call is in the accounts before the
// function looks at them.
type task struct {
	life *life
	kind string

	mu      sync.Mutex
	dues    []time.Duration // the earliest time of each run to come, in the order of arming
	maybe   int             // how many of the last dues may have been refused
	timer   *timingwheel.Timer
	timeout timingwheel.Timeout
}

// The caller of arm, armed, moved, mayMove, disarm and refused holds t.mu.

// arm notes that t may run after d, and returns when that is. It is called before the call on the
// wheel.
func (t *task) arm(d time.Duration) time.Duration {
	due := t.life.soak.now() + max(0, d)
	t.life.armed.Store(t, true)
	t.dues = append(t.dues, due)
	return due
}

// armed follows arm, after the call on the wheel. The call was accepted for certain only if the
// wheel cannot have been full, and is not ending.
func (t *task) armed(certain bool) {
	if !certain || t.life.begun.Load() {
		t.maybe++
	}
}

// moved follows arm, if the call moved the pending run to another time instead of adding one.
func (t *task) moved() {
	last := len(t.dues) - 1
	if last == 0 {
		t.life.violate("%s: reported as pending, but nothing was", t.kind)
		return
	}
	t.life.soak.count("reset").Add(1)
	t.dues[last-1] = t.dues[last]
	t.dues = t.dues[:last]
}

// mayMove calls a Reset that moves the pending run, if there is one.
func (t *task) mayMove(d time.Duration, reset func(time.Duration) bool) {
	due := t.life.soak.now() + max(0, d)
	if reset(d) {
		t.dues = append(t.dues, due)
		t.moved()
	}
}

// disarm ends one run, the oldest if first is set and the newest otherwise. It returns when that
// was due, and false if there was none.
func (t *task) disarm(first bool, how string) (due time.Duration, ok bool) {
	last := len(t.dues) - 1
	if last < 0 {
		t.life.violate("%s: %s, but it had ended before", t.kind, how)
		return 0, false
	}
	due = t.dues[last]
	if first {
		due = t.dues[0]
		copy(t.dues, t.dues[1:])
	}
	if t.dues = t.dues[:last]; last == 0 {
		t.maybe = 0
		t.life.armed.Delete(t)
	}
	t.life.soak.count(how).Add(1)
	return due, true
}

// refused follows arm, if the call returned an error.
func (t *task) refused(err error) {
	t.disarm(false, "refused")
	t.life.refused(t.kind, err)
}

func (t *task) cancel() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil && t.timer.Stop() || t.timer == nil && t.timeout.Cancel() {
		t.disarm(false, "canceled")
	}
}

// reset resets the Timer or the Timeout of t. A Timer that was refused never runs, and its Reset
// does not tell. So on a wheel with a limit, reset of a Timer does something only if it is called
// from inside the function, which proves that the Timer was accepted.
func (t *task) reset(d time.Duration, inside bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		t.mayMove(d, t.timeout.Reset)
		return
	}
	if t.life.shape.limit > 0 && !inside {
		return
	}
	t.arm(d)
	if t.timer.Reset(d) {
		t.moved()
	} else {
		t.armed(true)
	}
}

// ran accounts for a call of the function. It reports whether the call is a run: whether the
// wheel made it, and not the soak to learn which functions were discarded or handed back.
func (t *task) ran() bool {
	l, mode := t.life, t.life.mode.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	now := l.soak.now()
	due, ok := t.disarm(true, [...]string{"ran", "discarded", "handed back"}[mode])
	switch {
	case !ok:
	case mode == handingBack && l.deadline < due:
		l.violate("%s: handed back with a deadline of %v, due at %v", t.kind, l.deadline, due)
	case mode != handingBack:
		l.notEarly(t.kind, now, due)
	}
	return ok && mode == running
}

// run is the function of every task.
func (t *task) run() {
	if t.ran() {
		t.life.misbehave(t)
	}
}

// schedule makes a task by Schedule, ScheduleAt, AfterFunc or that of a Pool.
func (l *life) schedule(d time.Duration) {
	t := &task{life: l, kind: "Schedule"}
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.arm(d)
	var err error
	switch n := rand.IntN(6); {
	case n < 3:
		t.kind = "AfterFunc"
		t.timer = l.w.AfterFunc(d, t.run)
		t.armed(l.shape.limit == 0)
	case n == 3 && l.pool != nil:
		t.timeout, err = l.pool.Schedule(l.w, d, func(*pool.Worker) { t.run() })
	case n <= 4:
		t.timeout, err = l.w.Schedule(d, t.run)
	default:
		t.timeout, err = l.w.ScheduleAt(l.soak.begin.Add(due), t.run)
	}
	if err != nil {
		t.refused(err)
		return
	}
	l.known[rand.IntN(len(l.known))].Store(t)
}

// key is a key of a Keyed and the task that it was last scheduled for. Its mutex is held around
// each call for the key. Lock order: key, task.
type key struct {
	mu   sync.Mutex
	task *task // guarded by mu; nil until the first use
}

// callKeyed makes one random call for a random key.
func (l *life) callKeyed() {
	n, d := rand.IntN(len(l.keys)), l.delay()
	key := &l.keys[n]
	key.mu.Lock()
	defer key.mu.Unlock()
	if key.task == nil {
		key.task = &task{life: l, kind: "Keyed"}
	}
	t := key.task
	t.mu.Lock()
	defer t.mu.Unlock()
	switch rand.IntN(6) {
	case 0:
		if l.keyed.Cancel(n) {
			t.disarm(false, "canceled")
		}
	case 1:
		t.mayMove(d, func(d time.Duration) bool { return l.keyed.Reset(n, d) })
	default:
		next := &task{life: l, kind: "Keyed"}
		next.mu.Lock()
		defer next.mu.Unlock()
		next.arm(d)
		replaced, err := l.keyed.Schedule(n, d, next.run)
		if err != nil {
			next.refused(err)
			return
		}
		if key.task = next; replaced {
			t.disarm(false, "canceled")
		}
	}
}

// A task that ends twice, is lost, or is early is a violation.
func TestAccountsSeeFaults(t *testing.T) {
	arm := func(t *task, d time.Duration) { t.mu.Lock(); defer t.mu.Unlock(); t.arm(d) }
	for name, c := range map[string]struct {
		do   func(l *life, t *task)
		want int
	}{
		"ran":                 {func(_ *life, t *task) { arm(t, 0); t.ran() }, 0},
		"twice":               {func(_ *life, t *task) { arm(t, 0); t.ran(); t.ran() }, 1},
		"lost":                {func(_ *life, t *task) { arm(t, 0) }, 1},
		"early":               {func(_ *life, t *task) { arm(t, time.Hour); t.ran() }, 1},
		"handed back too old": {func(l *life, t *task) { arm(t, time.Hour); l.mode.Store(handingBack); t.ran() }, 1},
		"perhaps refused":     {func(l *life, t *task) { l.begun.Store(true); arm(t, 0); t.armed(true) }, 0},
	} {
		violations := 0
		l := &life{soak: &soak{begin: time.Now(), violated: func(string) { violations++ }}}
		c.do(l, &task{life: l, kind: "a task"})
		l.lost()
		require.Equal(t, c.want, violations, name)
	}
}
