package clock

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// other is a clock that is off, drifts, and answers after a while.
type other struct {
	start  time.Time
	off    time.Duration
	drift  float64
	answer func() time.Duration // a way
	err    error
}

func (o *other) now() time.Time {
	since := time.Since(o.start)
	return time.Now().Add(o.off + time.Duration(o.drift*float64(since))).Round(0)
}

func (o *other) read(context.Context) (time.Time, time.Duration, error) {
	time.Sleep(o.answer())
	t := o.now()
	time.Sleep(o.answer())
	return t, 0, o.err
}

// The other clock is never further off than is said, whatever the ways take, and for
// clocks that drift apart by less than is allowed for.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, off := range []time.Duration{0, time.Hour, -1000 * time.Hour} {
			o := &other{start: time.Now(), off: off, drift: 90e-6 * (2*rand.Float64() - 1), answer: func() time.Duration { return rand.N(20 * time.Millisecond) }}
			c, err := New(t.Context(), o.read)
			require.NoError(t, err)
			for range 2000 {
				time.Sleep(rand.N(2 * time.Second))
				if rand.N(2) == 0 {
					require.NoError(t, c.Sync(t.Context()))
				}
				now, within := c.Now()
				require.LessOrEqual(t, o.now().Sub(now).Abs(), within)
				due := o.now().Add(rand.N(time.Second))
				for wait := c.Until(due); wait > 0; wait = c.Until(due) {
					time.Sleep(wait)
				}
				require.False(t, o.now().Before(due))
				require.Less(t, o.now().Sub(due), 100*time.Millisecond)
			}
		}
	})
}

// A short round trip is better than a newer one, until it is old.
func TestKeepsTheBest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := time.Duration(0)
		o := &other{start: time.Now(), answer: func() time.Duration { return way }}
		c, err := New(t.Context(), o.read)
		require.NoError(t, err)
		way = 50 * time.Millisecond
		require.NoError(t, c.Sync(t.Context()))
		_, within := c.Now()
		require.Less(t, within, time.Millisecond)
	})
}

// When the other clock is set this one follows with the next reading.
func TestFollowsAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, step := range []time.Duration{time.Minute, -time.Hour} {
			way := time.Duration(0)
			o := &other{start: time.Now(), answer: func() time.Duration { return way }}
			c, err := New(t.Context(), o.read)
			require.NoError(t, err)
			o.off, way = step, time.Millisecond
			require.NoError(t, c.Sync(t.Context()))
			now, within := c.Now()
			require.LessOrEqual(t, o.now().Sub(now).Abs(), within)
		}
	})
}

// A step is counted once, with its size, and nothing else is: not what clocks drift apart,
// nor what a slow answer leaves open.
func TestCountsSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := time.Millisecond
		o := &other{start: time.Now(), drift: 90e-6, answer: func() time.Duration { return way }}
		c, err := New(t.Context(), o.read)
		require.NoError(t, err)
		quiet := func() {
			for range 100 {
				way = rand.N(time.Second)
				time.Sleep(rand.N(10 * time.Second))
				require.NoError(t, c.Sync(t.Context()))
			}
			way = time.Millisecond
			require.NoError(t, c.Sync(t.Context()))
		}
		quiet()
		require.Zero(t, c.Step())
		for i, step := range []time.Duration{time.Minute, -time.Hour, -150 * time.Millisecond} {
			o.off += step
			require.NoError(t, c.Sync(t.Context()))
			got := c.Step()
			require.EqualValues(t, i+1, got.Count)
			require.InDelta(t, step, got.By, float64(10*time.Millisecond))
			require.Less(t, time.Since(got.Seen), time.Second)
			quiet()
			require.Equal(t, got, c.Step())
		}
	})
}

func TestError(t *testing.T) {
	o := &other{answer: func() time.Duration { return 0 }, err: errors.New("no answer")}
	_, err := New(t.Context(), o.read)
	require.ErrorIs(t, err, o.err)
}

// The clocks drift apart also while an answer is on its way.
func TestDriftOfASlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, drift := range []float64{-90e-6, 90e-6} {
			o := &other{start: time.Now(), drift: drift, answer: func() time.Duration { return 0 }}
			slow := func(ctx context.Context) (time.Time, time.Duration, error) {
				at, off, err := o.read(ctx)
				time.Sleep(time.Second)
				return at, off, err
			}
			c, err := New(t.Context(), slow)
			require.NoError(t, err)
			now, within := c.Now()
			require.LessOrEqual(t, o.now().Sub(now).Abs(), within)
		}
	})
}

// SetBackFrom tells of a clock that was ahead and was put right before anybody read it.
func TestSetBackFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(t.Context(), func(context.Context) (time.Time, time.Duration, error) { return time.Now(), 0, nil })
		require.NoError(t, err)
		require.Zero(t, c.SetBackFrom())
		ahead := time.Now().Add(48 * time.Hour)
		c.Tell(ahead, 0)
		require.Zero(t, c.SetBackFrom())
		c.Tell(ahead.Add(-24*time.Hour), 0)
		c.Tell(time.Now(), 0)
		require.True(t, ahead.Equal(c.SetBackFrom()))
		require.Zero(t, c.SetBackFrom())
	})
}

// Tell does not wait for a reader of News. That reader wakes up once for calls that came together, and for no Sync.
func TestNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(t.Context(), func(context.Context) (time.Time, time.Duration, error) { return time.Now(), 0, nil })
		require.NoError(t, err)
		require.NoError(t, c.Sync(t.Context()))
		require.Empty(t, c.News(), "nobody has told anything")
		require.False(t, c.ToldWithin(time.Hour))
		for range 2 {
			for range 3 {
				c.Tell(time.Now(), 0)
			}
			<-c.News()
			require.Empty(t, c.News())
			require.True(t, c.ToldWithin(time.Second))
			time.Sleep(time.Second)
			require.False(t, c.ToldWithin(time.Second))
		}
	})
}
