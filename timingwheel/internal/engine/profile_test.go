package engine

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// profiled returns a wheel of one shard in virtual time with a profile.
func profiled(rate int) (w *testWheel, s *shard, q *sampler) {
	p := NewProfile(rate)
	w = newTestWheel(withManualClock(moonLanding), withShards(1), withExecutor(run.Inline{}), func(c *Config) { c.Profile = p })
	return w, &w.shards[0], &p.samplers[0]
}

// A stack begins with the caller of add, and has as many frames as fit.
func TestStackOfASample(t *testing.T) {
	w, _, _ := profiled(1)
	var deep func(n int)
	deep = func(n int) {
		if n > 0 {
			deep(n - 1)
			return
		}
		w.Engine.Schedule(w.Engine.After(time.Hour), noop, OneShot)
	}
	deep(100)
	origins := w.Profile()
	require.Len(t, origins, 1)
	require.Len(t, origins[0].Stack, 48, "the documentation says 44, without ours")
	frame, _ := runtime.CallersFrames(origins[0].Stack).Next()
	require.Equal(t, "github.com/tickwheel/tickwheel/timingwheel/internal/engine.(*shard).accept", frame.Function)
}

// A ticker whose first entry is not sampled never is, whatever was sampled before.
func TestUnsampledTickerHasNoSamples(t *testing.T) {
	for _, sampledBefore := range []bool{false, true} {
		w, s, _ := profiled(math.MaxInt32)
		want := 0
		if sampledBefore {
			want = 1
			s.nextSample = s.counts.Scheduled + 1
			w.Engine.Schedule(w.Engine.After(time.Hour), noop, OneShot)
		}
		var h Recurring
		h.Join(w.Engine)
		for range 10 {
			h.Add(Delay{s.clock.Now(), time.Hour}, noop, Internal)
			require.Nil(t, h.recurrence)
			h.Cancel()
		}
		h.UnlockShard()
		n, _ := w.Samples()
		require.Equal(t, want, n)
	}
}

// All samples of a ticker have one number, which no other ticker has. Its adds after the first move the
// next sample, so that they do not count.
func TestNumbersOfTickers(t *testing.T) {
	w, s, q := profiled(1)
	numbers := map[uint32]bool{}
	for range 3 {
		var h Recurring
		h.Join(w.Engine)
		for range 5 {
			h.Add(Delay{s.clock.Now(), time.Hour}, noop, Internal)
			last := q.at(q.end - 1)
			require.Equal(t, h.ref, last.ref())
			require.Equal(t, *h.recurrence, last.recurrence)
			require.NotZero(t, last.origin)
			require.Equal(t, s.counts.Scheduled+1, s.nextSample)
			h.Cancel()
		}
		h.UnlockShard()
		numbers[h.recurrence.number] = true
	}
	require.Len(t, numbers, 3)
	require.NotContains(t, numbers, uint32(0))
}

// A pass looks at 256 samples under one lock, and no sample leaves its place meanwhile. Then it
// drops those of entries that have ended.
func TestPassIsInSlices(t *testing.T) {
	w, s, q := profiled(1)
	const n = 2*SliceLen + 10
	add := func() Handle {
		h, err := w.Engine.Schedule(w.Engine.After(time.Hour), noop, OneShot)
		require.NoError(t, err)
		return h
	}
	for range 100 { // so that the queue does not begin with its first chunk
		h := add()
		h.LockShard()
		h.Cancel()
		h.UnlockShard()
	}
	for range n {
		add()
	}
	pending := func() (n int64) {
		for _, o := range w.Profile() {
			n += o.Pending
		}
		return n
	}
	require.EqualValues(t, n, pending())
	require.NoError(t, Verify(w.Engine))

	p := &pass{s: s, q: q, found: map[origin]*Origin{}, seen: map[uint32]bool{}}
	next := p.begin()
	require.Equal(t, q.end, next)
	begin, first := q.begin, q.at(q.begin)
	for slice, more := 0, true; more; slice++ {
		var last int
		last, more = p.slice(next)
		require.Equal(t, max(begin, next-SliceLen), last)
		require.Equal(t, slice < 2, more)
		next = last
		add() // is not in the profile, and moves nothing
		require.Equal(t, begin, q.begin)
		require.Same(t, first, q.at(begin))
	}
	require.Equal(t, n+3, p.end())
	total := int64(0)
	for _, o := range p.found {
		total += o.Pending
	}
	require.EqualValues(t, n, total)
	begin = q.begin
	add()
	require.NotEqual(t, begin, q.begin, "samples are looked at again")
	require.EqualValues(t, n+4, pending())

	for i := range s.arena.All() {
		s.arena.Remove(i)
	}
	require.Zero(t, pending())
	left, _ := w.Samples()
	require.Zero(t, left, "nothing is pending")
}

// At its end a pass looks at the newest samples again, for tickers that it has missed. It counts none
// twice.
func TestPassSeesTickersThatComeAgain(t *testing.T) {
	for others, want := range map[int]int64{0: 3, lastLooks - 3: 3, lastLooks - 2: 2} {
		w, s, q := profiled(1)
		var tickers [3]Recurring
		arm := func(h *Recurring) {
			h.LockShard()
			defer h.UnlockShard()
			h.Cancel()
			h.Add(Delay{s.clock.Now(), time.Hour}, noop, Internal)
		}
		for i := range tickers {
			h := &tickers[i]
			h.Join(w.Engine)
			h.UnlockShard()
			arm(h)
		}
		p := &pass{s: s, q: q, found: map[origin]*Origin{}, seen: map[uint32]bool{}}
		next := p.begin()
		arm(&tickers[0])
		_, more := p.slice(next)
		require.False(t, more)
		w.Advance(time.Minute)
		arm(&tickers[1]) // was seen, as tickers[2]
		arm(&tickers[2])
		for range others {
			w.Engine.Schedule(w.Engine.After(time.Hour), noop, OneShot)
		}
		p.end()
		total, waited := int64(0), 0.0
		for _, o := range p.found {
			total += o.Pending
			waited += o.Waited
		}
		require.Equal(t, want, total, others)
		require.Equal(t, float64(max(0, want-2))*60, waited, others)
	}
}

// A wheel that is stopped in the middle of a pass ends it.
func TestPassOverAStoppedWheel(t *testing.T) {
	w, s, q := profiled(1)
	for range 3 * SliceLen {
		w.Engine.Schedule(w.Engine.After(time.Hour), noop, OneShot)
	}
	p := &pass{s: s, q: q, found: map[origin]*Origin{}, seen: map[uint32]bool{}}
	next, _ := p.slice(p.begin())
	w.Stop()
	_, more := p.slice(next)
	require.False(t, more)
	require.Zero(t, p.end())
	require.Empty(t, w.Profile())
}
