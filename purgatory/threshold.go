package purgatory

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/internal/parking"
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/park"
)

// Threshold is a number that only rises, such as an offset, a high water mark or an
// epoch. Each waiter waits until the number is at least some value. The number begins at
// the zero value of V. For many waiters a Threshold is cheaper than a [Purgatory] with
// one key: Notify visits every waiter, and Advance only those that it ends.
//
// Make one with [NewThreshold]; the zero value panics. All methods are safe for
// concurrent use, and may be called from a done.
type Threshold[V cmp.Ordered] struct {
	wheel      *timingwheel.TimingWheel
	after      timingwheel.Executor // runs what is left to do after the wheel's Stop
	trampoline trampoline
	running    atomic.Int32 // calls of done, see trampoline

	mu     sync.Mutex // guards what follows; never held together with a lock of the wheel
	closed bool
	value  V
	seq    uint64     // of the last waiter
	root   *waiter[V] // those that wait for more than value: see treap.go
	stats  Stats      // without what is the same as Pending
}

// waiter is one allocation. Its fields but for the core do not change, or are guarded by
// threshold.mu. It is accepted when it enters or, if its deadline comes before, when it
// leaves.
type waiter[V cmp.Ordered] struct {
	core
	threshold   *Threshold[V]
	v           V
	seq         uint64
	priority    uint32
	accepted    bool // counted as parked
	ended       bool // counted as ended
	left, right *waiter[V]
}

// NewThreshold returns a Threshold whose deadlines are kept by w. It panics on a nil
// wheel.
func NewThreshold[V cmp.Ordered](w *timingwheel.TimingWheel) *Threshold[V] {
	if w == nil {
		panic("purgatory: NewThreshold(nil)")
	}
	return &Threshold[V]{wheel: w, after: timingwheel.Goroutines()}
}

// Await waits until the number is at least v. It returns nil then. It returns
// [ErrExpired] if d has passed first, [ErrClosed], an error of Park, or
// context.Cause(ctx). If ctx has ended before the call, it returns the cause at once. A d
// that is not positive expires at once, unless the number is at least v already. The
// deadline does not depend on the wheel's executor. O(log n) with n waiters.
//
// It panics on a nil ctx, and on a v that does not equal itself, a NaN.
func (t *Threshold[V]) Await(ctx context.Context, v V, d time.Duration) error {
	t.mustBeMade("Await")
	mustEqualItself("Await", v)
	if ctx == nil {
		panic("purgatory: Await: nil context")
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	outcome, err := t.begin(v, d)
	if err != nil || outcome != Pending {
		return errorOf(err, outcome)
	}
	ended := make(chan struct{})
	w := &waiter[V]{threshold: t, v: v, priority: rand.Uint32()}
	w.done = func(Outcome) { close(ended) }
	w.state.Store(ours)
	if err := w.register(d); err != nil {
		return err
	}
	return wait(ctx, w, &w.core, ended)
}

// Park calls done with the [Outcome] once the number is at least v, or d has passed, or
// cancel is called. Done may be nil. [Purgatory.Park] says on which goroutine it is
// called; Advance takes the place of Notify. Park itself calls done if the number is at
// least v already, or d is not positive.
//
// Cancel ends the operation with Canceled, and reports whether this call has ended it.
//
// Park returns [ErrClosed] after Close. If it has to wait, it returns
// [timingwheel.ErrStopped] on a stopped wheel, and [timingwheel.ErrTooManyPending] where
// timingwheel.WithMaxPending permits no more. Then done is not called, and cancel is nil.
// It panics on a v that does not equal itself, a NaN. O(log n) with n waiters.
func (t *Threshold[V]) Park(v V, d time.Duration, done func(Outcome)) (cancel func() bool, err error) {
	t.mustBeMade("Park")
	mustEqualItself("Park", v)
	outcome, err := t.begin(v, d)
	if err != nil {
		return nil, err
	}
	w := &waiter[V]{threshold: t, v: v, priority: rand.Uint32()}
	if outcome == Pending {
		w.done = done
		if err := w.register(d); err != nil {
			return nil, err
		}
		return w.Cancel, nil
	}
	w.end(outcome, parked)
	if done != nil {
		w.call(done, outcome)
	}
	return w.Cancel, nil
}

// begin returns Pending if somebody has to wait.
func (t *Threshold[V]) begin(v V, d time.Duration) (Outcome, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return Pending, ErrClosed
	case v <= t.value:
		t.stats.Immediate++
		t.stats.Parked++
		t.stats.ended(Satisfied)
		return Satisfied, nil
	case d <= 0:
		t.stats.Parked++
		t.stats.ended(Expired)
		return Expired, nil
	}
	return Pending, nil
}

// register puts the waiter on the wheel and into the tree, and sets parked.
func (w *waiter[V]) register(d time.Duration) (err error) {
	if w.timer, err = park.On(w.threshold.wheel, d, (*waiterOnWheel[V])(w)); err != nil {
		return err
	}
	switch outcome, err := w.enter(d); {
	case err != nil:
		if _, first := w.end(Closed, 0); first {
			w.timer.Cancel()
			return err
		}
	case outcome != Pending:
		w.end(outcome, 0)
	}
	if outcome := w.settle(); outcome != Pending {
		finish(w, outcome)
	}
	return nil
}

// enter is begin once more, since the number may have risen meanwhile, in one with the
// entry into the tree.
func (w *waiter[V]) enter(d time.Duration) (Outcome, error) {
	t := w.threshold
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return Pending, ErrClosed
	case w.v <= t.value:
		return Satisfied, nil
	}
	t.seq++
	w.seq = t.seq
	insert(&t.root, w)
	w.accept()
	return Pending, nil
}

// Advance raises the number to v, and ends the waiters for values up to v with Satisfied:
// the lowest value first, and equal values in the order of parking. It returns how many
// this call has ended. Advance changes nothing if v is not above the number, and after
// Close. O(ended + log n) with n waiters.
//
// Hold no lock that a done takes. A done that panics or ends the goroutine does not
// affect the others, as in [Purgatory.Notify]. Advance panics on a v that does not equal
// itself, a NaN.
func (t *Threshold[V]) Advance(v V) (ended int) {
	t.mustBeMade("Advance")
	mustEqualItself("Advance", v)
	return t.endAll(t.raise(v), Satisfied)
}

// raise sets the number, and takes out of the tree who waits for no more than that.
func (t *Threshold[V]) raise(v V) (reached *waiter[V]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || v <= t.value {
		return nil
	}
	t.value = v
	reached, t.root = split(t.root, v, t.seq+1)
	return reached
}

// endAll ends the waiters of a tree that is nobody's any more.
func (t *Threshold[V]) endAll(root *waiter[V], o Outcome) (ended int) {
	ws := inOrder(root, nil)
	t.trampoline.all(func() bool {
		if len(ws) == 0 {
			return false
		}
		w := ws[0]
		ws[0], ws = nil, ws[1:]
		if w.finishIf(o) {
			ended++
		}
		return true
	})
	return ended
}

// Close ends all waiters with Closed. Later calls of Await and Park return [ErrClosed],
// and Advance changes nothing any more. Close may be called any number of times.
func (t *Threshold[V]) Close() {
	t.mustBeMade("Close")
	t.endAll(t.close(), Closed)
}

func (t *Threshold[V]) close() (root *waiter[V]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	root, t.root = t.root, nil
	return root
}

// Cancel is what Park returns.
func (w *waiter[V]) Cancel() bool { return w.finishIf(Canceled) }

// finishIf ends the wait with an outcome, unless it has ended before.
func (w *waiter[V]) finishIf(o Outcome) bool {
	before, first := w.end(o, 0)
	if first && before&parked != 0 {
		finish(w, o)
	}
	return first
}

func (w *waiter[V]) leave(o Outcome) {
	t := w.threshold
	t.mu.Lock()
	defer t.mu.Unlock()
	remove(&t.root, w)
	if w.ended {
		return
	}
	w.accept()
	w.ended = true
	t.stats.Pending--
	t.stats.ended(o)
}

// accept counts the waiter, the first time that it is called. threshold.mu is held.
func (w *waiter[V]) accept() {
	if !w.accepted {
		w.accepted = true
		w.threshold.stats.Parked++
		w.threshold.stats.Pending++
	}
}

func (w *waiter[V]) call(done func(Outcome), o Outcome) {
	w.threshold.trampoline.run(&w.threshold.running, done, o)
}

// waiterOnWheel is a waiter as the wheel sees it.
type waiterOnWheel[V cmp.Ordered] waiter[V]

// Expire implements parking.Op.
func (x *waiterOnWheel[V]) Expire(parking.Held) (leave, done func()) {
	w := (*waiter[V])(x)
	if before, first := w.end(Expired, 0); !first || before&parked == 0 {
		return nil, nil
	}
	return expired(w)
}

// Stop implements parking.Op.
func (x *waiterOnWheel[V]) Stop(parking.Held) (rest func(), by parking.Executor) {
	w := (*waiter[V])(x)
	if before, first := w.end(Closed, 0); !first || before&parked == 0 {
		return nil, nil
	}
	return stopped(w), w.threshold.after
}

func (t *Threshold[V]) mustBeMade(method string) {
	if t.wheel == nil {
		panic("purgatory: " + method + ": the Threshold was not made by NewThreshold")
	}
}

func mustEqualItself[V cmp.Ordered](method string, v V) {
	if v != v {
		panic("purgatory: " + method + ": the value does not equal itself")
	}
}
