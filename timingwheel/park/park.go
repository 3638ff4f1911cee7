// Package park puts operations of package purgatory on a wheel. It is of no use to a
// program: only package purgatory can implement its parameter. It is not a method of
// TimingWheel, or a variable that package timingwheel sets, because every program would
// then link it: 22 KB.
package park

import (
	"time"

	"github.com/tickwheel/tickwheel/internal/parking"
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// On holds an operation of package purgatory on a wheel until its deadline, d from now. It
// returns the Timeout that takes op off the wheel, or [timingwheel.ErrStopped], or
// [timingwheel.ErrTooManyPending].
func On(w *timingwheel.TimingWheel, d time.Duration, op parking.Op) (timingwheel.Timeout, error) {
	e, now := (*engine.Engine)(w).Here()
	h, err := e.Park(engine.Delay{Now: now, D: d}, op)
	return timingwheel.Timeout(h), err
}
