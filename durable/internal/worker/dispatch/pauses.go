package dispatch

import (
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A pause with an end ends by the engine's clock, without a notice. The Dispatcher goes by the pauses
// that are in force, and looks each RetryInterval, and at the earliest end, whether others are: that
// finds a clock that was set, too. Nothing is claimed meanwhile, however many jobs wait.

// pausesAt returns the time by which pauses end: the engine's clock surely shows it.
func pausesAt(now Moment) time.Time { return now.Engine.Add(-min(now.Off, driver.RetryInterval)) }

// covering returns the limits that cover a job, and whether it is paused, as of the last look.
func (s *gateSet) covering(kind, lane string) (limits []*driver.StoredLimit, paused bool) {
	limits, rest := s.flow.Covering(kind, lane, s.pausesAt)
	return limits, rest > 0
}

// inForce returns the pauses that are in force at a time.
func inForce(f *driver.FlowControl, at time.Time) (all []driver.Pause) {
	for _, p := range f.Pauses() {
		if p.Rest(at) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// look takes over the pauses that are in force.
func (s *gateSet) look(now Moment) {
	s.pausesAt = pausesAt(now)
	s.pauses = inForce(s.flow, s.pausesAt)
	s.limited = len(s.flow.Limits())+len(s.pauses) > 0
	s.watchPauses(now)
}

// watchPauses sets the Timer of the next look at the pauses, if one of them has an end.
func (s *gateSet) watchPauses(now Moment) {
	after := driver.Forever
	for _, p := range s.flow.Pauses() { // one that is passed over since the clock was set back may be in force again
		if rest := p.Until.Sub(pausesAt(now)); !p.Until.IsZero() && rest > 0 {
			after = min(after, rest, driver.RetryInterval)
		}
	}
	if after == driver.Forever {
		return
	}
	if s.manual {
		after = time.Millisecond // its time may pass at once, and nobody tells when
	}
	s.looks++
	s.agenda.timer(Timer{After: after, what: pauseEnds, n: int64(s.looks)})
}

// lookAtPauses applies the pauses anew if others are in force than at the last look.
func (d *Dispatcher) lookAtPauses(n int, now Moment) {
	switch {
	case n != d.gates.looks: // there is a later Timer
	case !slices.Equal(inForce(d.gates.flow, pausesAt(now)), d.gates.pauses):
		d.applyFlowControl(now)
	default:
		d.gates.watchPauses(now)
	}
}
