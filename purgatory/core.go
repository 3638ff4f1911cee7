package purgatory

import (
	"context"
	"sync/atomic"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// core is what an operation of a Purgatory and a waiter of a Threshold have in common: an
// outcome that is set once, and a rule that says who does what is to be done then.
//
// The state has the outcome and the bit parked, which Park sets when it has registered
// the operation in full, and has written timer. The goroutine that sets the second of the two
// finishes: takes the operation off the wheel and out of its keys, and calls done. So
// that happens once, and never while Park is still adding to it. The other fields belong
// to Park until parked is set, and then to who finishes.
type core struct {
	state  atomic.Uint32
	stripe uint8 // of an Op: that of its first key. Here, where it takes no room
	timer  timingwheel.Timeout
	done   func(Outcome) // may be nil
}

const (
	outcomeMask = 7
	parked      = 1 << 3
	ours        = 1 << 4 // done is this package's own: it never blocks, and runs no code of a user

	// Of an operation with a question, see Op.check.
	asking = 1 << 5
	marked = 1 << 6
)

// member is an Op or a waiter.
type member interface {
	base() *core

	// leave takes the operation out of where it is linked, and counts its outcome, the
	// first time that it is called.
	leave(o Outcome)

	// call calls done, which is not nil.
	call(done func(Outcome), o Outcome)
}

func (c *core) base() *core { return c }

func (c *core) outcome() Outcome { return Outcome(c.state.Load() & outcomeMask) }

// end sets the outcome, if none is set yet, together with the bits of also. It returns
// the state before, and whether it was the one to set it.
func (c *core) end(o Outcome, also uint32) (before uint32, first bool) {
	for {
		s := c.state.Load()
		if s&outcomeMask != 0 {
			return s, false
		}
		if c.state.CompareAndSwap(s, s|uint32(o)|also) {
			return s, true
		}
	}
}

// settle sets parked, and returns the outcome if that is set already.
func (c *core) settle() Outcome { return Outcome(c.state.Or(parked) & outcomeMask) }

// finish is called by whoever has set the second of outcome and parked, unless that was
// the wheel.
func finish(m member, o Outcome) {
	c := m.base()
	c.timer.Cancel()
	done := c.done
	c.done = nil // a user may keep the Op
	m.leave(o)
	if done != nil {
		tell(m, done, o)
	}
}

// tell calls done. A done of this package's own nests no further, and must not be queued
// behind a user's, which may block.
func tell(m member, done func(Outcome), o Outcome) {
	if m.base().state.Load()&ours != 0 {
		done(o)
	} else {
		m.call(done, o)
	}
}

// expired is what is left to do after the wheel has set the second of the two. Of a
// user's done nothing here may depend, and done may not run before the operation is out
// of all its keys. So both leave, and the second finds nothing to do.
func expired(m member) (leave, done func()) {
	c := m.base()
	f := c.done
	c.done = nil
	switch {
	case f == nil:
		return func() { m.leave(Expired) }, nil
	case c.state.Load()&ours != 0:
		return func() { m.leave(Expired); f(Expired) }, nil
	}
	return func() { m.leave(Expired) }, func() { m.leave(Expired); m.call(f, Expired) }
}

// stopped is what is left to do after the wheel was stopped and has set the second of the
// two.
func stopped(m member) (rest func()) {
	c := m.base()
	f := c.done
	c.done = nil
	return func() {
		m.leave(Closed)
		if f != nil {
			tell(m, f, Closed)
		}
	}
}

// wait waits until the operation has ended or ctx has, and then cancels it. Ended is
// closed by the operation's done.
func wait(ctx context.Context, m interface{ Cancel() bool }, c *core, ended <-chan struct{}) error {
	select {
	case <-ended:
	case <-ctx.Done():
		if m.Cancel() {
			return context.Cause(ctx)
		}
		<-ended // somebody was first, and is about to close it
	}
	return c.outcome().err()
}
