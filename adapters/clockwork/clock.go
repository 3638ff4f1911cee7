// Package clockwork makes a timing wheel a [clockwork.Clock], for programs that take one:
//
//	s, err := gocron.NewScheduler(gocron.WithClock(clockwork.New(w)))
//
// It is a module of its own for the sake of that import.
package clockwork

import (
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// New returns the clock of a wheel. Its timers and tickers are on the wheel, under the
// contract of package time, and their times round up to a tick. Now, Since and Until are
// by the wheel's clock. So with a wheel that has a manual clock it is a fake one: Advance
// of the wheel moves it. After the wheel's Stop, channels go on by package time, and
// functions and tickers end.
//
// A nil wheel panics. The clock is safe for concurrent use, and has nothing to close.
func New(w *timingwheel.TimingWheel) clockwork.Clock {
	if w == nil {
		panic("clockwork: New(nil)")
	}
	return clock{w}
}

type clock struct{ w *timingwheel.TimingWheel }

func (c clock) Now() time.Time                             { return c.w.Now() }
func (c clock) Since(t time.Time) time.Duration            { return c.w.Now().Sub(t) }
func (c clock) Until(t time.Time) time.Duration            { return t.Sub(c.w.Now()) }
func (c clock) Sleep(d time.Duration)                      { c.w.Sleep(d) }
func (c clock) After(d time.Duration) <-chan time.Time     { return c.w.After(d) }
func (c clock) NewTimer(d time.Duration) clockwork.Timer   { return timer{c.w.NewTimer(d)} }
func (c clock) NewTicker(d time.Duration) clockwork.Ticker { return ticker{c.w.NewTicker(d)} }

func (c clock) AfterFunc(d time.Duration, f func()) clockwork.Timer {
	return timer{c.w.AfterFunc(d, f)}
}

type timer struct{ *timingwheel.Timer }

func (t timer) Chan() <-chan time.Time { return t.C }

type ticker struct{ *timingwheel.Ticker }

func (t ticker) Chan() <-chan time.Time { return t.C }
