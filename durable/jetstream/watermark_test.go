package jetstream

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/testservers/busy"
)

// closeBucket closes a near bucket as a clock that is ahead does.
func closeBucket(t *testing.T, p *part, b int64) {
	ok, err := p.markClosed(t.Context(), p.nearMark(b), func(f *watermark) { f.near = max(f.near, b) })
	require.NoError(t, err)
	require.True(t, ok)
}

func recordAt(id string, due, born time.Time) driver.Record {
	due, born = due.Truncate(time.Microsecond), born.Truncate(time.Microsecond)
	return driver.Record{ID: id, Job: driver.Job{Kind: "k", At: due, MaxAttempts: 3}, Due: due, Born: born}
}

// The watermark rises and never falls, whoever writes it, and is what a new engine finds.
func TestWatermark(t *testing.T) {
	p := newPart(t)
	other, err := Connect(t.Context(), p.Conn.NC)
	require.NoError(t, err)
	defer other.Close()
	late := other.(*engine).parts[0]
	require.Equal(t, bottom, late.lowest())
	closeBucket(t, p, 100)
	closeBucket(t, p, 70)
	require.EqualValues(t, 100, p.lowest().near)
	ok, err := late.markClosed(t.Context(), late.nearMark(80), func(f *watermark) { f.near = max(f.near, 80) })
	require.NoError(t, err)
	require.False(t, ok, "it did not know how high the watermark is")
	require.EqualValues(t, 100, late.lowest().near)
	ok, err = late.markClosed(t.Context(), late.farMark(7), func(f *watermark) { f.far = max(f.far, 7) })
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, p.readWatermark(t.Context()))
	for _, q := range []*part{p, late} {
		require.EqualValues(t, 100, q.lowest().near)
		require.EqualValues(t, 7, q.lowest().far)
	}
	again, err := Connect(t.Context(), p.Conn.NC)
	require.NoError(t, err)
	defer again.Close()
	require.EqualValues(t, 100, again.(*engine).parts[0].lowest().near)
	require.EqualValues(t, 7, again.(*engine).parts[0].lowest().far)
}

// After a restore of an older backup the watermark is lower again, or none, also for those who live.
func TestWatermarkOfABackup(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	later := watermark{near: 200, far: 20, seq: 1 << 40}
	p.learn(later)
	require.NoError(t, p.readWatermark(t.Context()))
	require.Equal(t, bottom, p.lowest())
	closeBucket(t, p, 100)
	p.learn(later)
	require.NoError(t, p.readWatermark(t.Context()))
	require.EqualValues(t, 100, p.lowest().near)
}

// An insert that finds its bucket closed goes to the first open one if it is new, also
// where the writer did not know. If an earlier try may have stored it, nobody knows
// whether that has run: ErrUncertain, with a key as without.
func TestInsertBelowTheWatermark(t *testing.T) {
	for _, key := range []string{"", "key"} {
		p := newPart(t)
		other, err := Connect(t.Context(), p.Conn.NC)
		require.NoError(t, err)
		defer other.Close()
		now := p.Now()
		b := p.nearOf(now.Add(2 * time.Minute)) // so near that it is not in a far bucket
		insert := func(p *part, id string, due, born time.Time) error {
			r := recordAt(id, due, born)
			r.Key = key
			if key != "" {
				r.Key += id
			}
			return p.insertOne(t.Context(), r)
		}
		for _, b := range []int64{p.nearOf(now.Add(-time.Minute)), b - 1, b} {
			closeBucket(t, p, b)
		}
		require.NoError(t, insert(other.(*engine).parts[0], "unknown", p.start(b), now))
		require.NoError(t, insert(p, "known", p.start(b), now))
		require.NoError(t, insert(p, "known", p.start(b), now), "repeated")
		require.NoError(t, insert(p, "above", p.end(b), now))
		old := now.Add(-time.Minute)
		require.ErrorIs(t, insert(p, "late", old, old), durable.ErrUncertain)
		for id, want := range map[string]location{
			"unknown": {"unknown", b + 1, 1}, "known": {"known", b + 1, 1}, "above": {"above", b + 1, 0},
		} {
			r := recordAt(id, p.start(b), now)
			if id == "above" {
				r = recordAt(id, p.end(b), now)
			}
			a := address{bucket: p.nearOf(r.Due), born: r.Born.UnixMicro(), id: id}
			at, _, err := p.forwarded(t.Context(), a)
			require.NoError(t, err)
			require.Equal(t, want, at)
			info, err := p.describe(t.Context(), p.refOf(&r), a)
			require.NoError(t, err)
			require.True(t, r.Due.Equal(info.Due))
		}
		info, err := p.Info(t.Context(), p.queues.nearSubject(b+1, "k"))
		require.NoError(t, err)
		require.EqualValues(t, 3, info.Subjects[p.queues.nearSubject(b+1, "k")], "each is stored once")
	}
}

// A far bucket is moved while the near buckets of its jobs are closed already: all of them
// run, none before its time. So too when the buckets of the present are closed, and when
// the move had been tried before.
func TestMoveToClosedBuckets(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"a closed range": 0, "and the present": 10 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var by, early atomic.Int64
			p := newPart(t, Shift(func(_ string, now time.Time) time.Time { return now.Add(time.Duration(by.Load())) }))
			e := newEngine("default", []*part{p}, func(error) {})
			now := p.Now()
			due := p.start(p.nearOf(now.Add(3 * time.Hour)))
			const jobs = 50
			for i := range jobs {
				r := recordAt("r"+itoa(int64(i)), due, now)
				require.NoError(t, p.insertOne(t.Context(), r))
			}
			closeBucket(t, p, p.nearOf(due))
			if ahead > 0 {
				closeBucket(t, p, p.nearOf(now.Add(ahead)))
				for at := now; at.Before(now.Add(time.Minute)); at = at.Add(5 * time.Second) {
					closeBucket(t, p, p.nearOf(at.Add(due.Sub(now)-9*time.Minute)))
				}
			}
			q, err := durable.Open(t.Context(), e, durable.WithLease(busy.Longer(5*time.Second)))
			require.NoError(t, err)
			defer q.Close()
			var ran atomic.Int64
			q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
				if p.Now().Before(a.Due) || !a.Due.Equal(due) {
					early.Add(1)
				}
				ran.Add(1)
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- q.Run(ctx) }()
			until := func(ok func() bool) {
				for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
					require.True(t, time.Now().Before(end), "%d of %d have run", ran.Load(), jobs)
				}
			}
			by.Store(int64(due.Sub(now) - 9*time.Minute)) // it is moved ten minutes ahead
			until(func() bool {
				info, err := p.Info(t.Context(), p.subject("h.*"))
				require.NoError(t, err)
				return len(info.Subjects) == 0
			})
			require.Zero(t, ran.Load(), "before its time")
			n := 0
			for _, err := range q.All(t.Context(), durable.Filter{}) {
				require.NoError(t, err)
				n++
			}
			require.Equal(t, jobs, n)
			by.Store(int64(due.Sub(now)))
			until(func() bool { return ran.Load() == jobs })
			cancel()
			require.NoError(t, <-done)
			require.Zero(t, early.Load())
		})
	}
}

// A bucket whose jobs were all canceled in its far bucket has statuses alone. A worker that begins after its time closes
// it, so that they do not stay for ever.
func TestBucketOfStatusesAloneIsClosed(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	r := recordAt("x", p.Now().Add(3*time.Hour), p.Now())
	require.NoError(t, p.insertOne(t.Context(), r))
	at := location{id: r.ID, bucket: p.nearOf(r.Due)}
	canceled, err := p.changes.cancel(t.Context(), address{bucket: at.bucket, born: r.Born.UnixMicro(), id: r.ID})
	require.NoError(t, err)
	require.True(t, canceled)
	left, err := p.Info(t.Context(), p.farSubject(p.farOf(at.bucket)))
	require.NoError(t, err)
	require.Empty(t, left.Subjects)

	f := newFetcher(p, newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{}), nil)
	require.NoError(t, f.closer.closeOnce(t.Context(), view{now: p.Now().Add(4 * time.Hour), all: true}, true))
	s, err := p.status(t.Context(), at)
	require.NoError(t, err)
	require.Zero(t, s.seq)
	mark, err := p.Last(t.Context(), p.nearMark(at.bucket))
	require.NoError(t, err)
	require.NotZero(t, mark.Seq, "a late try of an Add finds it closed")
}
