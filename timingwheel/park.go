package timingwheel

import (
	"time"

	"github.com/tickwheel/tickwheel/internal/parking"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// Package purgatory parks operations through package parking, since no other package can
// see inside of this one. A method of TimingWheel would be shown to everybody, with a
// parameter that nobody can have.
func init() { parking.Park = park }

// park holds an operation of package purgatory until its deadline, d from now. It returns
// what takes op off the wheel, or [ErrStopped], or [ErrTooManyPending].
func park(w *TimingWheel, d time.Duration, op parking.Op) (Timeout, error) {
	e, now := w.here()
	h, err := e.Park(engine.Delay{Now: now, D: d}, op)
	return Timeout(h), err
}
