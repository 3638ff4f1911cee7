package timingwheel

import (
	"sync/atomic"
	"time"
)

// Default returns the wheel of the process, for programs that want to share one without
// passing it around, and for packages that cannot be handed one. It is made on first use,
// with the defaults of [New], unless [SetDefault] has set one. Every call returns the
// same wheel. The first call makes the wheel, which costs as much as any idle wheel.
//
// The wheel belongs to the process. It cannot be stopped, since others use it too, and there is no
// other afterwards: its Stop and Shutdown panic, and change nothing. Package time cannot be stopped
// either. It needs no end: while nothing is due it has no goroutine. To end your own timers and wait
// for their functions, put them in a [Group]. No bubble of testing/synctest owns it, not even one in which Default is
// called first. A timer that is started in a bubble follows the rules for a wheel that was made
// outside, see [TimingWheel].
//
// Nothing in this package uses Default by itself. It is safe for concurrent use; a call
// costs an atomic load.
func Default() *TimingWheel { return process.get() }

// SetDefault makes w the wheel that [Default] returns, so that it can have options. Call it
// once, in main or before, and not in a library. It panics after the first call of Default
// or of SetDefault, since others have that wheel then. It also panics on nil, on a wheel
// that was made in a bubble of testing/synctest, and on one that refuses functions: it was stopped,
// or has [WithMaxPending]. Those who call AfterFunc get no error.
func SetDefault(w *TimingWheel) { process.set(w) }

// process is all the global state of this package.
var process shared

// loaded is a reading of the clock that no bubble has taken: package variables are
// initialized outside of all bubbles.
var loaded = time.Now()

// shared is a wheel that is made when it is first asked for.
type shared struct{ wheel atomic.Pointer[TimingWheel] }

func (s *shared) get() *TimingWheel {
	if w := s.wheel.Load(); w != nil {
		return w
	}
	s.wheel.CompareAndSwap(nil, newOutside()) // of several at the same time one wins
	return s.wheel.Load()
}

func (s *shared) set(w *TimingWheel) {
	switch {
	case w == nil:
		panic("timingwheel: SetDefault(nil)")
	case w.engine().Clock().IsBubbled():
		panic("timingwheel: SetDefault: the wheel was made in a testing/synctest bubble: make it outside")
	case w.engine().Refuses():
		panic("timingwheel: SetDefault: the wheel refuses functions: it was stopped, or has WithMaxPending")
	case !s.wheel.CompareAndSwap(nil, w):
		panic("timingwheel: SetDefault: the default wheel is in use, or was set before: call SetDefault once, at the start")
	}
}

// mustNotEnd panics if w is the wheel. A wheel that is stopped would drop each function of an
// AfterFunc that comes later, without a word, while channels and contexts move to package time.
//
// Rejected: to leave these functions to package time, too. Then Reset, tickers and groups would need
// the same, to be no worse.
func (s *shared) mustNotEnd(w *TimingWheel) {
	if s.wheel.Load() == w {
		panic("timingwheel: the default wheel cannot be stopped, others use it: stop a Group, or make a wheel of your own")
	}
}

// newOutside returns a wheel that was made outside of all bubbles, wherever it is called.
// All that binds a wheel to a bubble is the time from which it counts: it makes its
// channels, timers and goroutines when it needs them, and it needs none for what is started
// in a bubble.
func newOutside() *TimingWheel {
	c := newSettings(nil)
	c.Start = loaded
	return newWheel(c)
}
