package clocks

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/tickwheel/tickwheel/timingwheel"
)

const ms = time.Millisecond

// common is what the two kinds of clocks have in common.
type common interface {
	Now() time.Time
	Since(t time.Time) time.Duration
	Sleep(d time.Duration)
	After(d time.Duration) <-chan time.Time
}

type timer interface {
	Stop() bool
	Reset(d time.Duration) bool
}

// subject is a clock, and what moves it.
type subject struct {
	common
	newTimer  func(d time.Duration) (<-chan time.Time, timer)
	afterFunc func(d time.Duration, f func()) timer
	newTicker func(d time.Duration) (c <-chan time.Time, stop func())
	advance   func(d time.Duration)
}

func ofClockwork(c clockwork.Clock, advance func(d time.Duration)) subject {
	return subject{
		c,
		func(d time.Duration) (<-chan time.Time, timer) { t := c.NewTimer(d); return t.Chan(), t },
		func(d time.Duration, f func()) timer { return c.AfterFunc(d, f) },
		func(d time.Duration) (<-chan time.Time, func()) { t := c.NewTicker(d); return t.Chan(), t.Stop },
		advance,
	}
}

func ofK8s(c clock.WithTickerAndDelayedExecution, advance func(d time.Duration)) subject {
	return subject{
		c,
		func(d time.Duration) (<-chan time.Time, timer) { t := c.NewTimer(d); return t.C(), t },
		func(d time.Duration, f func()) timer { return c.AfterFunc(d, f) },
		func(d time.Duration) (<-chan time.Time, func()) { t := c.NewTicker(d); return t.C(), t.Stop },
		advance,
	}
}

// each runs f with each library's own clock and with a wheel's, in real time and by hand: the
// same must hold for all. Real time is a bubble's. (The fake clock of k8s.io/utils is not
// like the real one: its Sleep moves the clock, and Stop of its Ticker does nothing.)
func each(t *testing.T, f func(t *testing.T, s subject)) {
	for name, start := range map[string]func(w, byHand *timingwheel.TimingWheel) subject{
		"clockwork/real": func(_, _ *timingwheel.TimingWheel) subject { return ofClockwork(clockwork.NewRealClock(), time.Sleep) },
		"clockwork/fake": func(_, _ *timingwheel.TimingWheel) subject {
			fake := clockwork.NewFakeClock()
			return ofClockwork(fake, fake.Advance)
		},
		"clockwork/wheel": func(w, _ *timingwheel.TimingWheel) subject { return ofClockwork(clockworkClock{w}, time.Sleep) },
		"clockwork/hand": func(_, w *timingwheel.TimingWheel) subject {
			return ofClockwork(clockworkClock{w}, func(d time.Duration) { w.Advance(d) })
		},
		"k8s/real":  func(_, _ *timingwheel.TimingWheel) subject { return ofK8s(clock.RealClock{}, time.Sleep) },
		"k8s/wheel": func(w, _ *timingwheel.TimingWheel) subject { return ofK8s(k8sClock{w}, time.Sleep) },
		"k8s/hand": func(_, w *timingwheel.TimingWheel) subject {
			return ofK8s(k8sClock{w}, func(d time.Duration) { w.Advance(d) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, byHand := timingwheel.New(), timingwheel.New(timingwheel.WithManualClock(time.Now()))
				t.Cleanup(func() { w.Stop(); byHand.Stop() })
				s := start(w, byHand)
				advance := s.advance
				s.advance = func(d time.Duration) { advance(d); synctest.Wait() }
				f(t, s)
			})
		})
	}
}

func isReady(c <-chan time.Time) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestAfter(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		now, one, three := s.After(0), s.After(ms), s.After(3*ms)
		s.advance(0)
		require.True(t, isReady(now))
		require.False(t, isReady(one))
		s.advance(ms)
		require.True(t, isReady(one))
		s.advance(ms)
		require.False(t, isReady(three))
		s.advance(ms)
		require.True(t, isReady(three))
	})
}

func TestTimer(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		c, timer := s.newTimer(2 * ms)
		require.True(t, timer.Stop())
		require.False(t, timer.Stop())
		s.advance(3 * ms)
		require.False(t, isReady(c))
		require.False(t, timer.Reset(2*ms))
		require.True(t, timer.Reset(5*ms))
		s.advance(4 * ms)
		require.False(t, isReady(c))
		s.advance(ms)
		require.True(t, isReady(c))
	})
}

func TestAfterFunc(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		runs := make(chan bool, 9)
		timer := s.afterFunc(2*ms, func() { runs <- true })
		s.advance(ms)
		require.Empty(t, runs)
		s.advance(ms)
		require.Len(t, runs, 1)
		require.False(t, timer.Stop())
		require.False(t, timer.Reset(ms))
		s.advance(ms)
		require.Len(t, runs, 2)
	})
}

func TestTicker(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		c, stop := s.newTicker(2 * ms)
		ticks := []<-chan time.Time{c}
		if k, ok := s.common.(clock.WithTickerAndDelayedExecution); ok {
			ticks = append(ticks, k.Tick(2*ms)) //nolint:staticcheck // of a bubble, which ends
		}
		for range 3 {
			s.advance(ms)
			for _, c := range ticks {
				require.False(t, isReady(c))
			}
			s.advance(ms)
			for _, c := range ticks {
				require.True(t, isReady(c))
			}
		}
		stop()
		if again, ok := s.common.(clockwork.Clock); ok {
			again := again.NewTicker(time.Hour)
			again.Stop() // the fake of v0.5.0 ticks twice after a Reset without it
			again.Reset(3 * ms)
			s.advance(2 * ms)
			require.False(t, isReady(again.Chan()))
			s.advance(ms)
			require.True(t, isReady(again.Chan()))
			again.Stop()
		}
		s.advance(9 * ms)
		require.False(t, isReady(c))
	})
}

func TestNowAndSleep(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		start := s.Now()
		woken := make(chan time.Duration, 1)
		go func() { s.Sleep(2 * ms); woken <- s.Since(start) }()
		synctest.Wait()
		s.advance(ms)
		require.Empty(t, woken)
		require.Equal(t, ms, s.Since(start))
		if c, ok := s.common.(clockwork.Clock); ok {
			require.Equal(t, -ms, c.Until(start))
		}
		s.advance(ms)
		require.Equal(t, 2*ms, <-woken)
		require.Equal(t, start.Add(2*ms), s.Now())
	})
}

// The page shows what is tested here, all but the imports.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../adapters/README.md")
	require.NoError(t, err)
	for _, file := range []string{"clockwork.go", "k8s.go"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		_, code, _ := strings.Cut(string(text), "\n)\n\n")
		require.NotEmpty(t, code)
		require.Contains(t, string(page), "```go\n"+code+"```\n", file)
	}
}
