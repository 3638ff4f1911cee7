package timingwheel

import (
	"time"

	"github.com/tickwheel/tickwheel/internal/parking"
)

// Park holds an operation of package purgatory until its deadline, d from now. It is for
// that package alone: nobody else can name the type of op. It returns what takes op off
// the wheel, or [ErrStopped], or [ErrTooManyPending]. O(1), and one allocation.
//
// A parked operation is pending like a function of Schedule: it counts toward
// [WithMaxPending], and Shutdown waits until it has ended. Unlike a function it is not
// handed back by Stop, which would leave those hanging who wait for it: Stop ends it. At
// the deadline its outcome is set by the driver, and the rest is done where contexts are
// ended, whatever the executor is busy with; but the user's function goes to the
// executor.
//
// There has to be something exported, since the other package calls it. A method with a
// parameter that nobody else can have is the least. Rejected were: a variable in an
// internal package that this one sets in its init, which is global state; the whole wheel
// in an internal package, with this one a shell around it; package purgatory as a part of
// this one; and an exported way to make tasks of the wheel's own, which must keep to
// rules that are not a user's to know.
func (w *TimingWheel) Park(d time.Duration, op parking.Op) (Timeout, error) {
	after := delay{w.clock.now(), d}
	w.yield(after.now)
	var e entry
	e.join(w)
	defer e.unlock()
	s := e.shard
	if err := e.accept(after, func() { s.unpark(op) }, own|oneShot|alone); err != nil {
		return Timeout{}, err
	}
	return Timeout{e}, nil
}

// unpark is the wheel's own task. The caller holds s.mu.
func (s *shard) unpark(op parking.Op) {
	if s.stopped {
		s.endParked(op)
		return
	}
	leave, done := op.Expire(parking.Held{})
	if leave != nil {
		s.end(function(leave))
	}
	switch {
	case done == nil:
	case s.gate == nil:
		s.expired(function(done))
	default:
		s.finishParked(done)
	}
}

// finishParked hands done to an executor that has a gate. The operation has expired,
// whatever the executor is busy with; done has to pass the gate like any function. So it
// becomes an entry of its own, due now. Unlike a function it is not handed back by Stop:
// it runs then. The caller holds s.mu.
func (s *shard) finishParked(done func()) {
	due := func() {
		switch {
		case s.stopped: // a goroutine, since the executor may run it here, with s.mu held
			s.driver.runner.admit(1)
			go s.driver.runner.run(function(done))
		default:
			s.expired(function(done))
		}
	}
	s.limit.force()
	s.add(delay{s.clock.now(), 0}, due, own|oneShot)
}

// endParked ends an operation while the shard is being stopped. What is left to do does
// not go through the driver any more. It is a task of the wheel all the same: the panic
// handler covers it, and Shutdown waits for it. The caller holds s.mu.
func (s *shard) endParked(op parking.Op) {
	if rest, by := op.Stop(parking.Held{}); rest != nil {
		s.driver.runner.admit(1)
		by.Execute(s.driver.runner.wrap([]task{function(rest)}))
	}
}
