// Package time is the package time of the standard library with its timers on the wheel
// of the process, [timingwheel.Default]. It has all of that package's names. So a program
// puts its timers on a wheel by a change of one import:
//
//	import "github.com/tickwheel/tickwheel/dropin/time"
//
// AfterFunc, NewTimer, After, NewTicker, Tick and Sleep are on the wheel. All else is the
// standard library's own: a [Duration], a [Time] or a [Location] of either package is
// one of the other. Timer and Ticker are not: they are types of package timingwheel, so
// that a *Timer cannot be passed to code that wants a *time.Timer.
//
// The README of folder dropin says what else differs, when it pays, and when not.
package time

import "github.com/tickwheel/tickwheel/timingwheel"

// Timer is a timer on the wheel. It has all methods of the standard library's, under the
// same contract.
type Timer = timingwheel.Timer

// Ticker is a ticker on the wheel. It has all methods of the standard library's, under
// the same contract.
type Ticker = timingwheel.Ticker

// AfterFunc is that of the standard library, on the wheel: see
// [timingwheel.TimingWheel.AfterFunc].
func AfterFunc(d Duration, f func()) *Timer { return timingwheel.Default().AfterFunc(d, f) }

// NewTimer is that of the standard library, on the wheel: see
// [timingwheel.TimingWheel.NewTimer]. Stop a timer that is no longer needed: the wheel
// holds it until it fires.
func NewTimer(d Duration) *Timer { return timingwheel.Default().NewTimer(d) }

// After is that of the standard library, on the wheel: see [timingwheel.TimingWheel.After].
// The wheel holds the channel until the time is sent, also if nobody waits any more.
func After(d Duration) <-chan Time { return timingwheel.Default().After(d) }

// Sleep is that of the standard library, on the wheel: see [timingwheel.TimingWheel.Sleep].
func Sleep(d Duration) { timingwheel.Default().Sleep(d) }

// NewTicker is that of the standard library, on the wheel: see
// [timingwheel.TimingWheel.NewTicker]. The period rounds up to a tick of the wheel. Stop a
// ticker that is no longer needed: the wheel holds it.
func NewTicker(d Duration) *Ticker { return timingwheel.Default().NewTicker(d) }

// Tick is that of the standard library, on the wheel: see [timingwheel.TimingWheel.Tick].
// Nothing ends it, so use it only for what goes on as long as the process.
func Tick(d Duration) <-chan Time { return timingwheel.Default().Tick(d) }
