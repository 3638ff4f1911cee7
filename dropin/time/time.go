// Package time is the package time of the standard library with its AfterFunc and NewTimer
// on the wheel of the process, [timingwheel.Default]. It has all of that package's names. So
// a program puts its timers on a wheel by a change of one import:
//
//	import "github.com/tickwheel/tickwheel/dropin/time"
//
// All else is the standard library's own: After, Sleep, tickers, and every type except
// Timer. A [Duration], a [Time] or a [Ticker] of either package is one of the other. A
// *Timer is a *timingwheel.Timer, which cannot be passed to code that wants a *time.Timer.
//
// Package time beats the wheel where a channel is often left alone: it spends nothing on a
// ticker, and forgets the channel of After, while no goroutine waits for it. The README of
// folder dropin has the figures of each call, how to choose the other side, what else
// differs, and when the wheel pays.
package time

import (
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// Timer is a timer on the wheel. It has all methods of the standard library's, under the
// same contract.
type Timer = timingwheel.Timer

// Ticker is that of the standard library.
type Ticker = time.Ticker

// AfterFunc is that of the standard library, on the wheel: see
// [timingwheel.TimingWheel.AfterFunc].
func AfterFunc(d Duration, f func()) *Timer { return timingwheel.Default().AfterFunc(d, f) }

// NewTimer is that of the standard library, on the wheel: see
// [timingwheel.TimingWheel.NewTimer]. Stop a timer that is no longer needed: the wheel
// holds it until it fires.
func NewTimer(d Duration) *Timer { return timingwheel.Default().NewTimer(d) }

// After is that of the standard library. [timingwheel.TimingWheel.After] is on a wheel.
func After(d Duration) <-chan Time { return time.After(d) }

// Sleep is that of the standard library. [timingwheel.TimingWheel.Sleep] is on a wheel.
func Sleep(d Duration) { time.Sleep(d) }

// NewTicker is that of the standard library. [timingwheel.TimingWheel.NewTicker] is on a
// wheel.
func NewTicker(d Duration) *Ticker { return time.NewTicker(d) }

// Tick is that of the standard library. [timingwheel.TimingWheel.Tick] is on a wheel.
func Tick(d Duration) <-chan Time { return time.Tick(d) }
