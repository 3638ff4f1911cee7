package subject

import (
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// Tickers makes tickers.
type Tickers interface {
	Timers
	NewTicker(d time.Duration) (c <-chan time.Time, stop func())
}

var timeNewTicker = Subject{
	Name:  "time.NewTicker",
	Setup: "package time's tickers; in their workload only",
	Kind:  TickerMaker,
	New: func(Options) Timers {
		return tickers{stdTimers(), func(d time.Duration) (<-chan time.Time, func()) {
			t := time.NewTicker(d)
			return t.C, t.Stop
		}}
	},
}

var wheelNewTicker = Subject{
	Name:  "wheel.NewTicker",
	Setup: "tickwheel's tickers, with the defaults; in their workload only",
	Kind:  TickerMaker,
	New: func(o Options) Timers {
		w := newWheel(o, timingwheel.Goroutines())
		return tickers{scheduleOn(w), func(d time.Duration) (<-chan time.Time, func()) {
			t := w.NewTicker(d)
			return t.C, t.Stop
		}}
	},
}

type tickers struct {
	Timers
	newTicker func(time.Duration) (<-chan time.Time, func())
}

func (t tickers) NewTicker(d time.Duration) (<-chan time.Time, func()) { return t.newTicker(d) }
