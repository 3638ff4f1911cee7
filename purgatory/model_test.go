package purgatory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// The model does the same steps to a purgatory and to a simple reference, which is a list of
// operations in the order of parking. Each logs the values that it returns and each call of done.
// The logs must be the same. Some calls of done do a step themselves.

// spec is what an operation is made from.
type spec struct {
	keys   []int
	d      time.Duration
	ready  bool // its condition, at first
	nilTry bool
	then   *step // of its done, unless it expires
}

// step is what is done.
type step struct {
	kind int
	n    int // a key, and what NotifyN is given; or the number of an operation
	spec spec
}

const (
	stepPark = iota
	stepNotify
	stepNotifyN
	stepCancelKey
	stepCheck
	stepCancel
	stepReady
	stepClose
	stepSleep
	stepKinds
)

const modelKeys = 4

// side is the purgatory or the reference.
type side interface {
	park(s spec)
	notify(key int) int
	notifyN(key, n int) int
	cancelKey(key int) int
	check(op int) bool
	cancel(op int) bool
	close()
	setReady(op int)
	count() int // operations made
	note(format string, args ...any)
}

func do(x side, s step) {
	op := -1
	if x.count() > 0 {
		op = s.n % x.count()
	}
	switch {
	case s.kind == stepPark:
		x.park(s.spec)
	case s.kind == stepNotify:
		x.note("notify %d = %d", s.n%modelKeys, x.notify(s.n%modelKeys))
	case s.kind == stepNotifyN:
		key, n := s.n%modelKeys, s.n/modelKeys%5-1
		x.note("notify %d of %d = %d", n, key, x.notifyN(key, n))
	case s.kind == stepCancelKey:
		x.note("cancel key %d = %d", s.n%modelKeys, x.cancelKey(s.n%modelKeys))
	case s.kind == stepClose:
		x.close()
	case op < 0:
	case s.kind == stepCheck:
		x.note("check %d = %t", op, x.check(op))
	case s.kind == stepCancel:
		x.note("cancel %d = %t", op, x.cancel(op))
	case s.kind == stepReady:
		x.setReady(op)
	}
}

// reference is the dumb one.
type reference struct {
	logged
	ops    []*referenceOp
	closed bool
	stats  Stats
	now    time.Duration
}

type referenceOp struct {
	spec
	id       int
	deadline time.Duration
	outcome  Outcome
}

type logged struct{ log []string }

func (l *logged) note(format string, args ...any) {
	l.log = append(l.log, fmt.Sprintf(format, args...))
}

func (r *reference) count() int { return len(r.ops) }

func (r *reference) setReady(op int) { r.ops[op].ready = true }

func (r *reference) park(s spec) {
	if r.closed {
		r.note("closed")
		return
	}
	o := &referenceOp{spec: s, id: len(r.ops)}
	r.ops = append(r.ops, o)
	r.stats.Parked++
	asks := int64(1)
	switch {
	case s.ready && !s.nilTry:
		r.stats.Immediate++
		r.end(o, Satisfied)
	case s.d <= 0:
		r.end(o, Expired)
	default:
		asks = 2
		o.deadline = (r.now + s.d + time.Millisecond - 1).Truncate(time.Millisecond)
	}
	if !s.nilTry {
		r.stats.Checks += asks
	}
	r.note("parked %d", o.id)
}

func (r *reference) end(o *referenceOp, outcome Outcome) {
	o.outcome = outcome
	*map[Outcome]*int64{Satisfied: &r.stats.Satisfied, Expired: &r.stats.Expired, Canceled: &r.stats.Canceled, Closed: &r.stats.Closed}[outcome]++
	r.note("done %d %v", o.id, outcome)
	if o.then != nil && outcome != Expired {
		do(r, *o.then)
	}
}

func (r *reference) pending(key int) (ops []*referenceOp) {
	for _, o := range r.ops {
		if o.outcome == Pending && slices.Contains(o.keys, key) {
			ops = append(ops, o)
		}
	}
	return ops
}

func (r *reference) notify(key int) (n int) {
	for _, o := range r.pending(key) {
		if r.check(o.id) {
			n++
		}
	}
	return n
}

func (r *reference) notifyN(key, n int) (ended int) {
	for _, o := range r.pending(key) {
		if ended < n && r.check(o.id) {
			ended++
		}
	}
	return ended
}

func (r *reference) cancelKey(key int) (n int) {
	for _, o := range r.pending(key) {
		if r.cancel(o.id) {
			n++
		}
	}
	return n
}

func (r *reference) check(op int) bool {
	o := r.ops[op]
	if o.outcome != Pending {
		return false
	}
	if !o.nilTry {
		r.stats.Checks++
		if !o.ready {
			return false
		}
	}
	r.end(o, Satisfied)
	return true
}

func (r *reference) cancel(op int) bool {
	if r.ops[op].outcome != Pending {
		return false
	}
	r.end(r.ops[op], Canceled)
	return true
}

// close leaves the order in which it ends them open: it is that of a map.
func (r *reference) close() {
	r.closed = true
	for _, o := range r.ops {
		if o.outcome == Pending {
			o.then = nil
			r.end(o, Closed)
		}
	}
}

func (r *reference) sleep(d time.Duration) {
	r.now += d
	for _, o := range r.ops {
		if o.outcome == Pending && o.deadline <= r.now {
			r.end(o, Expired)
		}
	}
}

// state returns what Stats must be, Expired operations and all.
func (r *reference) state() Stats {
	st, keys := r.stats, map[int]bool{}
	for _, o := range r.ops {
		if o.outcome == Pending {
			st.Pending++
			distinct := map[int]bool{}
			for _, key := range o.keys {
				distinct[key], keys[key] = true, true
			}
			st.Watched += int64(len(distinct))
		}
	}
	st.Keys = int64(len(keys))
	return st
}

// real is the purgatory. Done is called on other goroutines only while the test waits for
// them.
type real struct {
	logged
	p     *Purgatory[int]
	ops   []*realOp
	t     *testing.T
	later chan string // logs of done from the executor
}

type realOp struct {
	*Op[int]
	ready bool
}

func (r *real) count() int { return len(r.ops) }

func (r *real) setReady(op int) { r.ops[op].ready = true }

func (r *real) park(s spec) {
	if r.p.closed.Load() {
		_, err := r.p.Park(s.d, nil, nil, s.keys...)
		require.ErrorIs(r.t, err, ErrClosed)
		r.note("closed")
		return
	}
	o, id := &realOp{ready: s.ready}, len(r.ops)
	r.ops = append(r.ops, o)
	try := func() bool { return o.ready }
	if s.nilTry {
		try = nil
	}
	returned := false
	var err error
	o.Op, err = r.p.Park(s.d, try, func(outcome Outcome) {
		if outcome == Expired && returned {
			r.later <- fmt.Sprintf("done %d %v", id, outcome)
			return
		}
		r.note("done %d %v", id, outcome)
		if s.then != nil && outcome != Expired && outcome != Closed {
			do(r, *s.then)
		}
	}, s.keys...)
	returned = true
	require.NoError(r.t, err)
	r.note("parked %d", id)
}

func (r *real) notify(key int) int     { return r.p.Notify(key) }
func (r *real) notifyN(key, n int) int { return r.p.NotifyN(key, n) }
func (r *real) cancelKey(key int) int  { return r.p.CancelKey(key) }
func (r *real) close()                 { r.p.Close() }

// An operation that ends within Park, whose done does a step with it, is not known yet.
func (r *real) check(op int) bool  { return r.ops[op].Op != nil && r.ops[op].Check() }
func (r *real) cancel(op int) bool { return r.ops[op].Op != nil && r.ops[op].Cancel() }

func runModel(t *testing.T, steps []step) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		defer w.Stop()
		ref := &reference{}
		got := &real{p: New[int](w), t: t, later: make(chan string, len(steps)*8)}
		for i, s := range steps {
			unordered := s.kind == stepSleep || s.kind == stepClose
			if s.kind == stepSleep {
				ref.sleep(s.spec.d)
				time.Sleep(s.spec.d)
			} else {
				do(ref, s)
				do(got, s)
			}
			synctest.Wait()
			for len(got.later) > 0 {
				got.note("%s", <-got.later)
			}
			if unordered {
				slices.Sort(ref.log)
				slices.Sort(got.log)
			}
			require.Equal(t, ref.log, got.log, "step %d, %+v", i, s)
			ref.log, got.log = nil, nil
			require.Equal(t, ref.state(), got.p.verify(t), "step %d, %+v", i, s)
			require.EqualValues(t, got.p.Stats().Pending, w.Len(), "timers")
			for j, o := range got.ops {
				require.Equal(t, ref.ops[j].outcome, o.Outcome())
			}
		}
	})
}

// randomStep draws a step. Number is the source of randomness.
func randomStep(number func(n int) int, depth int) step {
	s := step{kind: number(stepKinds + 4), n: number(1 << 16)}
	if s.kind >= stepKinds || depth > 0 && s.kind >= stepClose {
		s.kind = stepPark
	}
	if s.kind == stepClose && number(8) > 0 {
		s.kind = stepNotify
	}
	s.spec.d = time.Duration(number(40)-2) * 500 * time.Microsecond
	if s.kind == stepSleep {
		s.spec.d = max(0, s.spec.d)
	}
	if s.kind != stepPark {
		return s
	}
	for range 1 + number(3) {
		s.spec.keys = append(s.spec.keys, number(modelKeys))
	}
	s.spec.ready, s.spec.nilTry = number(8) == 0, number(4) == 0
	if depth < 3 && number(3) == 0 {
		then := randomStep(number, depth+1)
		s.spec.then = &then
	}
	return s
}

func TestModel(t *testing.T) {
	for seed := range uint64(unlessShort(40, 10)) {
		random := rand.New(rand.NewPCG(seed, 0))
		var steps []step
		for range 300 {
			steps = append(steps, randomStep(random.IntN, 0))
		}
		runModel(t, steps)
	}
}

func FuzzModel(f *testing.F) {
	f.Add([]byte("park, notify and expire"))
	f.Add([]byte{0, 0, 0, 39, 0, 0, 0, 0, 1, 0, 7, 0, 0, 39})
	f.Fuzz(func(t *testing.T, data []byte) {
		number := func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := int(data[0])
			data = data[1:]
			return b % n
		}
		var steps []step
		for len(data) > 0 && len(steps) < 200 {
			steps = append(steps, randomStep(number, 0))
		}
		defer time.AfterFunc(time.Minute, func() { panic("hangs") }).Stop()
		runModel(t, steps)
	})
}
