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
	s := w.lock()
	defer s.mu.Unlock()
	h, err := s.accept(after, func() { s.unpark(op) }, own|oneShot)
	if err != nil {
		return Timeout{}, err
	}
	return Timeout{s, h}, nil
}

// unpark is the wheel's own task, called with s.mu held.
func (s *shard) unpark(op parking.Op) {
	if s.stopped {
		s.endParked(op)
		return
	}
	e := &s.driver.expired
	leave, done := op.Expire(parking.Held{})
	if leave != nil {
		e.contexts = append(e.contexts, function(leave))
	}
	if done != nil {
		e.tasks = append(e.tasks, function(done))
	}
}

// endParked is called with s.mu held, while the shard is being stopped. What is left to
// do cannot go the way of what expires, which is the driver's alone. It runs as a task of
// the wheel all the same: under the panic handler, and Shutdown waits for it.
func (s *shard) endParked(op parking.Op) {
	rest, by := op.Stop(parking.Held{})
	if rest == nil {
		return
	}
	r := s.driver.runner
	r.handed(1)
	by.Execute(r.wrap([]task{function(rest)}))
}
