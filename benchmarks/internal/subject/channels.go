package subject

import (
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// Channels makes timers with a channel. Its Timers run functions, which is what waits
// beside them.
type Channels interface {
	Timers
	// NewStop makes a timer with a channel and stops it. In between, wait is given the
	// channel, unless it is nil.
	NewStop(d time.Duration, wait func(<-chan time.Time))
}

var timeNewTimer = Subject{
	Name:  "time.NewTimer",
	Setup: "package time's NewTimer and Stop; in the workload of channels only",
	Kind:  ChannelMaker,
	New:   func(Options) Timers { return timeChannels{stdTimers()} },
}

var wheelNewTimer = Subject{
	Name:  "wheel.NewTimer",
	Setup: "tickwheel's NewTimer and Stop, with the defaults; in the workload of channels only",
	Kind:  ChannelMaker,
	New: func(o Options) Timers {
		w := newWheel(o, timingwheel.Goroutines())
		return wheelChannels{scheduleOn(w), w}
	},
}

type timeChannels struct{ Timers }

func (timeChannels) NewStop(d time.Duration, wait func(<-chan time.Time)) {
	t := time.NewTimer(d)
	if wait != nil {
		wait(t.C)
	}
	t.Stop()
}

type wheelChannels struct {
	Timers
	wheel *timingwheel.TimingWheel
}

func (c wheelChannels) NewStop(d time.Duration, wait func(<-chan time.Time)) {
	t := c.wheel.NewTimer(d)
	if wait != nil {
		wait(t.C)
	}
	t.Stop()
}
