package purgatory

import (
	"context"
	"hash/maphash"
	"math"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/park"
)

// Purgatory holds operations that wait for other goroutines to make a condition true.
// Keys name the possible causes. Make one with [New]; the zero value panics. All methods
// are safe for concurrent use, and may be called from done and from a try.
type Purgatory[K comparable] struct {
	wheel      *timingwheel.TimingWheel
	seed       maphash.Seed
	closed     atomic.Bool
	after      timingwheel.Executor // runs what is left to do after the wheel's Stop
	trampoline trampoline
	stripes    [stripes]stripe[K]
}

// New returns a purgatory whose deadlines are kept by w. A wheel may have any number of
// them. Each takes 9 KB and no goroutine. Close is needed only to end parked operations.
// New panics on a nil wheel.
func New[K comparable](w *timingwheel.TimingWheel) *Purgatory[K] {
	if w == nil {
		panic("purgatory: New(nil)")
	}
	return &Purgatory[K]{wheel: w, seed: maphash.MakeSeed(), after: timingwheel.Goroutines()}
}

// Park parks an operation under the keys until try holds, or d has passed, or it is
// canceled, and then calls done with its [Outcome], once. Both functions may be nil:
// without a try the first Notify satisfies the operation.
//
// Park calls try first. If try returns true, the operation is Satisfied, and nothing is
// registered. Otherwise, if d is not positive, the operation is Expired. Otherwise Park
// registers it and calls try once more, so that an event between the first call and the
// registration is not missed. An operation may have ended when Park returns, with done
// called by Park itself.
//
// An operation never expires before d has passed. It may expire as late as a function
// that is scheduled for d. Done is called on the goroutine that has ended the operation,
// or, after the deadline, by the wheel's executor, when the operation is out of all its
// keys; no lock is held. (Where such calls nest deep, see the package documentation.)
//
// Park returns [ErrClosed] after Close. If the operation has to wait, it returns
// [timingwheel.ErrStopped] on a stopped wheel, and [timingwheel.ErrTooManyPending] where
// timingwheel.WithMaxPending permits no more. If Park returns an error, done is not
// called. Nor is done called if try panics or ends the goroutine in Park: then nothing
// stays parked, and the operation counts as Canceled if it was registered.
//
// Park panics without a key, on a key that does not equal itself, such as a NaN, and on
// one that cannot be compared, such as a slice in an interface. A key that is given twice
// counts once. It costs O(1) for each key, and two allocations; one to five more with
// several keys.
func (p *Purgatory[K]) Park(d time.Duration, try func() bool, done func(Outcome), keys ...K) (*Op[K], error) {
	p.mustBeMade("Park")
	mustBeKeys("Park", keys)
	o, outcome, err := p.begin(d, try, keys)
	if err != nil {
		return nil, err
	}
	if outcome == Pending {
		o.done = done
		return o, o.register(d)
	}
	o = &Op[K]{purgatory: p}
	o.stripe = p.stripeOf(keys[0])
	o.end(outcome, asking|parked)
	if done != nil {
		o.call(done, outcome)
	}
	return o, nil
}

// Wait is a [Purgatory.Park] that blocks until the operation has ended. It returns nil if
// the operation was Satisfied, [ErrExpired], [ErrCanceled], [ErrClosed], an error of
// Park, or context.Cause(ctx). If ctx has ended before the call, Wait does not call try.
// The deadline does not depend on the wheel's executor.
//
//	err := p.Wait(r.Context(), 30*time.Second, func() bool { return log.End() > offset }, topic)
//
// It panics on a nil ctx. A task that runs inline on the wheel (timingwheel.Inline) must
// not wait. Wait allocates nothing if the first call of try returns true.
func (p *Purgatory[K]) Wait(ctx context.Context, d time.Duration, try func() bool, keys ...K) error {
	p.mustBeMade("Wait")
	mustBeKeys("Wait", keys)
	if ctx == nil {
		panic("purgatory: Wait: nil context")
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	o, outcome, err := p.begin(d, try, keys)
	if err != nil || outcome != Pending {
		return errorOf(err, outcome)
	}
	ended := make(chan struct{})
	o.done = func(Outcome) { close(ended) }
	o.state.Or(ours)
	if err := o.register(d); err != nil {
		return err
	}
	return wait(ctx, o, &o.core, ended)
}

func errorOf(err error, o Outcome) error {
	if err != nil {
		return err
	}
	return o.err()
}

// begin asks the first question. It returns an operation that has to wait, or how it has
// ended: then it is counted, and is none.
func (p *Purgatory[K]) begin(d time.Duration, try func() bool, keys []K) (*Op[K], Outcome, error) {
	if p.closed.Load() {
		return nil, Pending, ErrClosed
	}
	home := p.stripeOf(keys[0])
	s := &p.stripes[home]
	if try != nil {
		s.checks.Add(1)
		if try() {
			s.count(Satisfied, 1)
			return nil, Satisfied, nil
		}
	}
	if d <= 0 {
		s.count(Expired, 0)
		return nil, Expired, nil
	}
	return p.newOp(home, try, keys), Pending, nil
}

// newOp returns an operation with the flag asking, which register drops.
func (p *Purgatory[K]) newOp(home uint8, try func() bool, keys []K) *Op[K] {
	o := &Op[K]{purgatory: p, try: try}
	o.state.Store(asking)
	o.stripe = home
	o.first.op, o.first.key = o, keys[0]
	if len(keys) > 1 {
		o.addLinks(distinct(keys)[1:])
	}
	return o
}

// addLinks adds links for all keys but the first.
func (o *Op[K]) addLinks(keys []K) {
	more := make([]link[K], len(keys))
	last := &o.first
	for i, key := range keys {
		more[i] = link[K]{op: o, key: key}
		last.more = &more[i]
		last = last.more
	}
}

// register puts the operation on the wheel and under its keys, asks the second question,
// and sets parked.
func (o *Op[K]) register(d time.Duration) (err error) {
	if o.timer, err = park.On(o.purgatory.wheel, d, (*opOnWheel[K])(o)); err != nil {
		return err
	}
	asked := false
	defer func() {
		if !asked { // try has panicked, or ended the goroutine
			o.done = nil
			o.endOp(Canceled)
			finish(o, o.outcome())
		}
	}()
	if !o.link() {
		if _, first := o.endOp(Closed); first {
			asked = true
			o.timer.Cancel()
			o.leave(Pending)
			return ErrClosed
		}
	}
	o.ask(false)
	asked = true
	if outcome := o.settle(); outcome != Pending {
		finish(o, outcome)
	}
	return nil
}

// Notify announces a change that operations under the key may wait for. It visits the
// operations that were parked before it began and still are, in the order of their
// parking. It calls try of each, and returns how many this call has satisfied. It returns
// 0 for a key without operations.
//
// Change the state first, and then call Notify, with no lock held that a try or a done
// takes. Notify does not wait for a try that runs on another goroutine: that goroutine
// calls try once more, and the operation does not count here.
//
// A try that panics leaves its operation parked. Notify visits the others, and then
// repeats the panic, or the first of several. The same holds for a panic in done, and for
// runtime.Goexit in either.
//
// O(1) for each operation that is visited, and one allocation if more than 32 are.
func (p *Purgatory[K]) Notify(key K) (ended int) {
	p.mustBeMade("Notify")
	return p.visit(key, false, math.MaxInt)
}

// NotifyN is [Purgatory.Notify] for an event that satisfies at most n operations: n items
// in a queue, or n free slots. It calls try in the order of parking, and stops when it
// has satisfied n. It returns how many it has satisfied. If n is not positive, NotifyN
// does nothing and returns 0.
//
//	queue.Push(job)
//	p.NotifyN("jobs", 1)
//
// Others may be satisfied besides: by another call, by the second question of their own
// Park, or because their try was running on another goroutine, which asks once more. So a
// done takes an item if one is left, and parks again if not. A waiter that was satisfied
// but does not take its item must call NotifyN for it, since no other waiter was tried.
// An operation whose try or done panics does not count toward n.
//
// It costs O(1) for each operation that is visited, however many are parked. It makes one
// allocation, except if n is 1 and the first operation is satisfied.
func (p *Purgatory[K]) NotifyN(key K, n int) (ended int) {
	p.mustBeMade("NotifyN")
	if n <= 0 {
		return 0
	}
	return p.visit(key, false, n)
}

// CancelKey ends all operations that are parked under the key with Canceled, as Cancel
// does, and returns how many this call has ended. The done of one whose Park still runs
// is left to that call. It treats panics as Notify does.
func (p *Purgatory[K]) CancelKey(key K) (ended int) {
	p.mustBeMade("CancelKey")
	return p.visit(key, true, math.MaxInt)
}

// visit visits the operations under a key until it has ended most of them.
func (p *Purgatory[K]) visit(key K, cancel bool, most int) (ended int) {
	s := &p.stripes[p.stripeOf(key)]
	first, alone := s.first(key)
	if alone { // most often: a Park and its Notify take 428 ns instead of 464
		if first != nil && first.visit(cancel) {
			return 1
		}
		return 0
	}
	v := visit[K]{stripe: s, key: key, cancel: cancel, most: most}
	if most == 1 && first != nil {
		v.beginWith(first)
	}
	return v.all(&p.trampoline)
}

func (o *Op[K]) visit(cancel bool) (ended bool) {
	if cancel {
		return o.Cancel()
	}
	return o.check()
}

// Close ends all parked operations with Closed. Later calls of Park and Wait return
// [ErrClosed], and later calls of Notify return 0. Close may be called any number of
// times. It does not wait for a done that another goroutine calls. O(parked).
func (p *Purgatory[K]) Close() {
	p.mustBeMade("Close")
	p.closed.Store(true)
	var ops []*Op[K]
	for i := range p.stripes {
		ops = append(ops, p.stripes[i].close()...)
	}
	p.trampoline.all(func() bool {
		if len(ops) == 0 {
			return false
		}
		o := ops[0]
		ops[0], ops = nil, ops[1:]
		o.finishIf(Closed) // one with several keys is there several times
		return true
	})
}

func (p *Purgatory[K]) stripeOf(key K) uint8 {
	return uint8(maphash.Comparable(p.seed, key) % stripes)
}

func (p *Purgatory[K]) mustBeMade(method string) {
	if p.wheel == nil {
		panic("purgatory: " + method + ": the Purgatory was not made by New")
	}
}

func mustBeKeys[K comparable](method string, keys []K) {
	if len(keys) == 0 {
		panic("purgatory: " + method + ": no keys")
	}
	for _, key := range keys {
		if same := key; key != same {
			panic("purgatory: " + method + ": a key does not equal itself")
		}
	}
}

// distinct returns the keys without repetitions, in their order.
func distinct[K comparable](keys []K) []K {
	seen := make(map[K]bool, len(keys))
	unique := make([]K, 0, len(keys))
	for _, key := range keys {
		if !seen[key] {
			seen[key] = true
			unique = append(unique, key)
		}
	}
	return unique
}
