package engine

import (
	"github.com/tickwheel/tickwheel/internal/parking"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// Park holds an operation of package purgatory until its deadline. It returns
// what takes op off the wheel, or ErrStopped, or ErrTooManyPending. O(1), and one
// allocation.
//
// A parked operation is pending like a function: it counts toward the limit, and drain
// waits until it has ended. Unlike a function it is not handed back by stop, which would
// leave those hanging who wait for it: stop ends it. At the deadline its outcome is set by
// the driver, and the rest is done where contexts are ended, whatever the executor is busy
// with; but the user's function goes to the executor.
func (e *Engine) Park(after Delay, op parking.Op) (Handle, error) {
	var h Handle
	h.Join(e)
	defer h.UnlockShard()
	s := h.shard
	if err := h.Accept(after, func() { s.unpark(op) }, Internal|OneShot|NoExecutor); err != nil {
		return Handle{}, err
	}
	return h, nil
}

// unpark is the wheel's own task. The caller holds s.mu.
func (s *shard) unpark(op parking.Op) {
	if s.stopped {
		s.endParked(op)
		return
	}
	leave, done := op.Expire(parking.Held{})
	if leave != nil {
		s.runInternal(run.Function(leave))
	}
	switch {
	case done == nil:
	case s.hub.gate == nil:
		s.execute(run.Function(done))
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
			s.hub.runner.Admit(1)
			go s.hub.runner.Run(run.Function(done))
		default:
			s.execute(run.Function(done))
		}
	}
	s.limit.force()
	s.add(Delay{s.clock.Now(), 0}, due, Internal|OneShot)
}

// endParked ends an operation while the shard is being stopped. The rest does
// not go through the driver any more. It is a task of the wheel all the same: the panic
// handler covers it, and Shutdown waits for it. The caller holds s.mu.
func (s *shard) endParked(op parking.Op) {
	if rest, by := op.Stop(parking.Held{}); rest != nil {
		s.hub.runner.Admit(1)
		by.Execute([]func(){s.hub.runner.Wrap(run.Function(rest))})
	}
}
