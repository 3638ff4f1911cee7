package clocks

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// k8sClock makes a wheel a clock.WithTickerAndDelayedExecution.
type k8sClock struct{ *timingwheel.TimingWheel }

func (c k8sClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c k8sClock) NewTimer(d time.Duration) clock.Timer {
	return k8sTimer{c.TimingWheel.NewTimer(d)}
}

func (c k8sClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	return k8sTimer{c.TimingWheel.AfterFunc(d, f)}
}

func (c k8sClock) NewTicker(d time.Duration) clock.Ticker {
	return k8sTicker{c.TimingWheel.NewTicker(d)}
}

type k8sTimer struct{ *timingwheel.Timer }

func (t k8sTimer) C() <-chan time.Time { return t.Timer.C }

type k8sTicker struct{ *timingwheel.Ticker }

func (t k8sTicker) C() <-chan time.Time { return t.Ticker.C }
