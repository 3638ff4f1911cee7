package driver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A clock that is set back by an hour leaves tokens and turns an hour ahead: nothing waits for
// these.
func TestTakeAfterTheClockWasSetBack(t *testing.T) {
	limits := []*StoredLimit{{ID: 1, Limit: Limit{Running: 1, Rate: 10, Burst: 3}}}
	c, now := &Counter{}, time.Now()
	take := func(worker string, at time.Time) ClaimResult {
		return Take(limits, []*Counter{c}, []bool{false}, worker, at)
	}
	require.Equal(t, Granted, take("a", now).Status)
	require.Equal(t, Throttled, take("dead", now).Status, "it has the next turn")
	c.Taken = 0
	now = now.Add(-time.Hour)
	began := 0
	for ms := range 1000 {
		if take("a", now.Add(time.Duration(ms)*time.Millisecond)).Status == Granted {
			began++
			c.Taken = 0
		}
	}
	require.GreaterOrEqual(t, began, 10)
	require.LessOrEqual(t, began, 3+10+1, "never above Burst + Rate * t, and one that is taken ahead")
}

// A step of the clock lets one more begin than Burst + Rate * t, though claims get tokens ahead of their time: those
// that lie ahead when it is set back are not given again.
func TestTakeAcrossAStepBack(t *testing.T) {
	for _, rate := range []float64{1, 10, 1000} {
		for _, step := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 6 * time.Second, time.Hour} {
			limits := []*StoredLimit{{ID: 1, Limit: Limit{Rate: rate, Burst: 5}}}
			c, start := &Counter{}, time.Now()
			began := 0
			const half = 2 * time.Second
			for real := time.Duration(0); real < 2*half; real += time.Millisecond {
				now := start.Add(real)
				if real >= half {
					now = now.Add(-step)
				}
				for {
					v := Take(limits, []*Counter{c}, []bool{false}, "a", now)
					if v.Status != Granted {
						break
					}
					if begins := max(real, real+v.At.Sub(now)); v.At.IsZero() || begins < 2*half {
						began++
					}
				}
			}
			most := 5 + int(rate*(2*half).Seconds()) + 1
			require.LessOrEqual(t, began, most, "rate %v, a step of %v", rate, step)
			require.GreaterOrEqual(t, began, int(rate*(2*half-min(step, half)-TokenAhead).Seconds()), "rate %v, a step of %v", rate, step)
		}
	}
}

// A clock that is an hour ahead and one that is right alternate, each millisecond. In a second no more
// begin than the limit allows, and one for the step.
func TestTakeByTwoClocksInTurn(t *testing.T) {
	limits := []*StoredLimit{{ID: 1, Limit: Limit{Rate: 10, Burst: 5}}}
	for _, step := range []time.Duration{700 * time.Millisecond, 2 * time.Second, time.Hour} {
		c, now := &Counter{}, time.Now()
		var began []int // the millisecond of each
		most := 0
		for ms := range 5000 {
			for _, ahead := range []time.Duration{step, 0} {
				at := now.Add(ahead + time.Duration(ms)*time.Millisecond)
				if Take(limits, []*Counter{c}, []bool{false}, "a", at).Status == Granted {
					began = append(began, ms)
				}
			}
			for began[0] <= ms-1000 {
				began = began[1:]
			}
			most = max(most, len(began))
		}
		require.LessOrEqual(t, most, 5+10+1+1, "%v: Burst, Rate, one ahead of its time, one for the step", step)
		require.GreaterOrEqual(t, len(began), 9, "%v", step)
	}
}

// Of one clock that steps, a step forward lets all of a Burst begin once more, and a step back one
// job.
func TestTakeAfterOneStep(t *testing.T) {
	limits := []*StoredLimit{{ID: 1, Limit: Limit{Rate: 10, Burst: 5}}}
	for step, more := range map[time.Duration]int{time.Hour: 5, -time.Hour: 1, -20 * time.Second: 1} {
		c, now, began := &Counter{}, time.Now(), 0
		for ms := range 1000 {
			if ms == 500 {
				now = now.Add(step)
			}
			if Take(limits, []*Counter{c}, []bool{false}, "a", now.Add(time.Duration(ms)*time.Millisecond)).Status == Granted {
				began++
			}
		}
		require.LessOrEqual(t, began, 5+10+1+more, "%v", step)
		require.GreaterOrEqual(t, began, 10, "%v", step)
	}
}
