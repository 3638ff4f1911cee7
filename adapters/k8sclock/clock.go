// Package k8sclock makes a timing wheel a clock of k8s.io/utils/clock, for code that takes
// one, such as the workqueue and the flow control of client-go:
//
//	queue := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[string]{Clock: k8sclock.New(w)})
//
// It is a module of its own for the sake of that import.
package k8sclock

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// New returns the clock of a wheel. Its timers and tickers are on the wheel, under the
// contract of package time, and their times round up to a tick. Now and Since are by the
// wheel's clock. So with a wheel that has a manual clock it is a fake one: Advance of the
// wheel moves it. After the wheel's Stop, channels go on by package time, and functions
// and tickers end.
//
// A nil wheel panics. The clock is safe for concurrent use, and has nothing to close.
func New(w *timingwheel.TimingWheel) clock.WithTickerAndDelayedExecution {
	if w == nil {
		panic("k8sclock: New(nil)")
	}
	return wheelClock{w}
}

type wheelClock struct{ w *timingwheel.TimingWheel }

func (c wheelClock) Now() time.Time                         { return c.w.Now() }
func (c wheelClock) Since(t time.Time) time.Duration        { return c.w.Now().Sub(t) }
func (c wheelClock) Sleep(d time.Duration)                  { c.w.Sleep(d) }
func (c wheelClock) After(d time.Duration) <-chan time.Time { return c.w.After(d) }
func (c wheelClock) Tick(d time.Duration) <-chan time.Time  { return c.w.Tick(d) }
func (c wheelClock) NewTimer(d time.Duration) clock.Timer   { return timer{c.w.NewTimer(d)} }
func (c wheelClock) NewTicker(d time.Duration) clock.Ticker { return ticker{c.w.NewTicker(d)} }
func (c wheelClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	return timer{c.w.AfterFunc(d, f)}
}

type timer struct{ t *timingwheel.Timer }

func (t timer) C() <-chan time.Time        { return t.t.C }
func (t timer) Stop() bool                 { return t.t.Stop() }
func (t timer) Reset(d time.Duration) bool { return t.t.Reset(d) }

type ticker struct{ t *timingwheel.Ticker }

func (t ticker) C() <-chan time.Time { return t.t.C }
func (t ticker) Stop()               { t.t.Stop() }
