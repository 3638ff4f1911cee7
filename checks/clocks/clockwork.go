package clocks

import (
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// clockworkClock makes a wheel a clockwork.Clock.
type clockworkClock struct{ *timingwheel.TimingWheel }

func (c clockworkClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c clockworkClock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

func (c clockworkClock) NewTimer(d time.Duration) clockwork.Timer {
	return clockworkTimer{c.TimingWheel.NewTimer(d)}
}

func (c clockworkClock) AfterFunc(d time.Duration, f func()) clockwork.Timer {
	return clockworkTimer{c.TimingWheel.AfterFunc(d, f)}
}

func (c clockworkClock) NewTicker(d time.Duration) clockwork.Ticker {
	return clockworkTicker{c.TimingWheel.NewTicker(d)}
}

type clockworkTimer struct{ *timingwheel.Timer }

func (t clockworkTimer) Chan() <-chan time.Time { return t.C }

type clockworkTicker struct{ *timingwheel.Ticker }

func (t clockworkTicker) Chan() <-chan time.Time { return t.C }
