package purgatory

import "github.com/tickwheel/tickwheel/internal/parking"

// Op is an operation that [Purgatory.Park] has accepted. All methods are safe for
// concurrent use, and may be called from done and from a try. An Op that has ended holds
// none of Park's arguments.
//
// It is one allocation, which includes its link under the first key.
type Op[K comparable] struct {
	core
	purgatory *Purgatory[K]
	try       func() bool // may be nil; belongs to who has the flag asking
	first     link[K]
}

// Outcome returns how the operation has ended, or Pending if it has not. It is set before
// done is called.
func (o *Op[K]) Outcome() Outcome { return o.outcome() }

// Check is [Purgatory.Notify] for this operation alone: it calls try, and reports whether
// this call has satisfied the operation.
func (o *Op[K]) Check() bool { return o.check() }

// Cancel ends the operation with Canceled and returns true. Done has then been called
// with Canceled when Cancel returns. Cancel returns false if the operation had ended
// before; its done may still be running, or may not have begun.
func (o *Op[K]) Cancel() bool { return o.finishIf(Canceled) }

// finishIf ends the operation with an outcome, unless it has ended before. It finishes
// it, unless Park is still about to.
func (o *Op[K]) finishIf(outcome Outcome) bool {
	before, first := o.endOp(outcome)
	if first && before&parked != 0 {
		finish(o, outcome)
	}
	return first
}

// endOp is end, which takes the flag too: nothing will be asked any more. The goroutine
// that has the flag when the operation ends lets go of try.
func (o *Op[K]) endOp(outcome Outcome) (before uint32, first bool) {
	before, first = o.end(outcome, asking)
	if first && before&asking == 0 {
		o.try = nil
	}
	return before, first
}

// check asks, or leaves it to who is asking just now. The flag asking is held around a
// question, so that a try never overlaps itself. Nobody waits for it, since a try may
// take long: who finds it taken leaves a mark instead, and who drops the flag and finds
// the mark asks once more. So every event is followed by a question that begins after it.
//
// (With a lock that is only tried, and no mark, the event is lost that comes between the
// answer no and the unlock.)
func (o *Op[K]) check() (satisfied bool) {
	for {
		switch s := o.state.Load(); {
		case s&outcomeMask != 0:
			return false
		case s&asking == 0:
			if o.state.CompareAndSwap(s, s|asking) {
				return o.ask(true)
			}
		case s&marked != 0 || o.state.CompareAndSwap(s, s|marked):
			return false
		}
	}
}

// ask asks until there is no mark, and drops the flag, which the caller has. A nil try is
// answered by nilHolds, and after a mark by true. It reports whether it has satisfied the
// operation.
//
// When try panics, or ends the goroutine, the flag is dropped all the same, and a mark is
// still followed by a question.
func (o *Op[K]) ask(nilHolds bool) (satisfied bool) {
	dropped := false
	defer func() {
		if !dropped && !o.drop() {
			o.ask(true)
		}
	}()
	for {
		if o.holds(nilHolds) {
			before, first := o.endOp(Satisfied)
			o.drop()
			dropped = true
			if first && before&parked != 0 {
				finish(o, Satisfied)
			}
			return first
		}
		if o.drop() {
			dropped = true
			return false
		}
		nilHolds = true
	}
}

func (o *Op[K]) holds(nilHolds bool) bool {
	if o.try == nil {
		return nilHolds
	}
	o.home().checks.Add(1)
	return o.try()
}

// drop drops the flag. It reports false if there was a mark, which it has taken away:
// then the caller still has the flag, and has to ask again. When the operation has ended,
// the flag stays for ever.
func (o *Op[K]) drop() bool {
	for {
		switch s := o.state.Load(); {
		case s&outcomeMask != 0:
			o.try = nil
			return true
		case s&marked != 0:
			if o.state.CompareAndSwap(s, s&^marked) {
				return false
			}
		case o.state.CompareAndSwap(s, s&^asking):
			return true
		}
	}
}

// home is the stripe of the first key, which has the operation's accounts.
func (o *Op[K]) home() *stripe[K] { return &o.purgatory.stripes[o.stripe] }

// stripeOf returns the stripe of one of the operation's links.
func (o *Op[K]) stripeOf(l *link[K]) *stripe[K] {
	if l == &o.first {
		return o.home()
	}
	return &o.purgatory.stripes[o.purgatory.stripeOf(l.key)]
}

// link registers the operation under its keys. It reports false after Close.
func (o *Op[K]) link() bool {
	for l := &o.first; l != nil; l = l.more {
		if !o.stripeOf(l).link(l, l == &o.first) {
			return false
		}
	}
	return true
}

func (o *Op[K]) leave(outcome Outcome) {
	for l := &o.first; l != nil; l = l.more {
		o.stripeOf(l).unlink(l, l == &o.first, outcome)
	}
}

func (o *Op[K]) call(done func(Outcome), outcome Outcome) {
	o.purgatory.trampoline.run(&o.home().running, done, outcome)
}

// opOnWheel is an Op as the wheel sees it. It is a type of its own so that Op has no
// methods that are not for its user.
type opOnWheel[K comparable] Op[K]

// Expire implements parking.Op.
func (w *opOnWheel[K]) Expire(parking.Held) (leave, done func()) {
	o := (*Op[K])(w)
	if before, first := o.endOp(Expired); !first || before&parked == 0 {
		return nil, nil
	}
	return expired(o)
}

// Stop implements parking.Op.
func (w *opOnWheel[K]) Stop(parking.Held) (rest func(), by parking.Executor) {
	o := (*Op[K])(w)
	if before, first := o.endOp(Closed); !first || before&parked == 0 {
		return nil, nil
	}
	return stopped(o), o.purgatory.after
}
