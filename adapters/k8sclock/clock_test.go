package k8sclock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/tickwheel/tickwheel/adapters/k8sclock"
	"github.com/tickwheel/tickwheel/timingwheel"
)

const ms = time.Millisecond

// subject is a clock, and what moves it.
type subject struct {
	clock.WithTickerAndDelayedExecution
	advance func(d time.Duration)
}

// each runs f with the real clock of k8s.io/utils/clock, and with a wheel's in real time and
// by hand: the same must hold for all. Real time is a bubble's. (The fake clock of
// k8s.io/utils/clock/testing is not like the real one: its Sleep moves the clock, and Stop
// of its Ticker does nothing.)
func each(t *testing.T, f func(t *testing.T, s subject)) {
	for name, make := range map[string]func(t *testing.T) subject{
		"real": func(*testing.T) subject { return subject{clock.RealClock{}, time.Sleep} },
		"wheel": func(t *testing.T) subject {
			w := timingwheel.New()
			t.Cleanup(func() { w.Stop() })
			return subject{k8sclock.New(w), time.Sleep}
		},
		"wheel by hand": func(t *testing.T) subject {
			w := timingwheel.New(timingwheel.WithManualClock(time.Now()))
			t.Cleanup(func() { w.Stop() })
			return subject{k8sclock.New(w), func(d time.Duration) { w.Advance(d) }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := make(t)
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
		timer := s.NewTimer(2 * ms)
		require.True(t, timer.Stop())
		require.False(t, timer.Stop())
		s.advance(3 * ms)
		require.False(t, isReady(timer.C()))
		require.False(t, timer.Reset(2*ms))
		require.True(t, timer.Reset(5*ms))
		s.advance(4 * ms)
		require.False(t, isReady(timer.C()))
		s.advance(ms)
		require.True(t, isReady(timer.C()))
	})
}

func TestAfterFunc(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		runs := make(chan bool, 9)
		timer := s.AfterFunc(2*ms, func() { runs <- true })
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

func TestTick(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		ticks := s.Tick(2 * ms)
		for range 3 {
			s.advance(ms)
			require.False(t, isReady(ticks))
			s.advance(ms)
			require.True(t, isReady(ticks))
		}
	})
}

func TestTicker(t *testing.T) {
	each(t, func(t *testing.T, s subject) {
		ticker := s.NewTicker(2 * ms)
		for range 3 {
			s.advance(ms)
			require.False(t, isReady(ticker.C()))
			s.advance(ms)
			require.True(t, isReady(ticker.C()))
		}
		ticker.Stop()
		s.advance(9 * ms)
		require.False(t, isReady(ticker.C()))
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
		s.advance(ms)
		require.Equal(t, 2*ms, <-woken)
		require.Equal(t, start.Add(2*ms), s.Now())
	})
}

func TestNil(t *testing.T) {
	require.PanicsWithValue(t, "k8sclock: New(nil)", func() { k8sclock.New(nil) })
}
