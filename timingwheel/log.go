package timingwheel

import (
	"log/slog"
	"time"
)

// WithLogger has the wheel log the few things that its user may want to know, and that
// nobody is told otherwise. Each message begins with "timingwheel: ".
//
//   - Warn "driver is late", with the attribute late, a duration: something fired more than a second after its time,
//     because the process was suspended or got no processor, or because the executor held
//     the driver up. Once, until the driver has caught up.
//   - Error "task panicked", with the attributes panic and stack, if there is a [WithPanicHandler]
//     (without one the program crashes).
//   - Warn "precise wake-ups are not available", see [WithPreciseWakeups].
//
// The logger is called on the driver's goroutine or on that of the task, or by New for the
// last of these, without a lock held. By default nothing is logged. New panics on nil.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) {
		if l == nil {
			panic("timingwheel: WithLogger(nil)")
		}
		c.log = l
	}
}

// tooLate is what a driver has to be late by to say so.
const tooLate = time.Second

// noteLateness is told how late the latest was of what has just expired.
func (d *driver) noteLateness(late time.Duration) {
	wasBehind := d.behind
	d.behind = late > tooLate // first: the logger may end the goroutine
	if d.behind && !wasBehind {
		d.runner.log.Warn("timingwheel: driver is late", "late", late)
	}
}
