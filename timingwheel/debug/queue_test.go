package debug

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// fakeQueue is a queue with made-up figures. A count takes cost, or less if its context
// ends.
type fakeQueue struct {
	stats  QueueStats
	counts QueueCounts
	err    error
	cost   time.Duration

	asked, begun, ended atomic.Int64
}

func (f *fakeQueue) Stats() QueueStats {
	f.asked.Add(1)
	return f.stats
}

func (f *fakeQueue) Count(ctx context.Context) (QueueCounts, error) {
	f.begun.Add(1)
	defer func() { f.ended.Add(1) }()
	select {
	case <-ctx.Done():
		return f.counts, ctx.Err()
	case <-time.After(f.cost):
		return f.counts, f.err
	}
}

func newFakeQueue() *fakeQueue {
	f := &fakeQueue{
		stats:  QueueStats{Held: 9, Claimed: 4, Running: 3, Attempts: 100, Done: 80, Failed: 15, Dead: 2, LeaseLost: 1},
		counts: QueueCounts{Waiting: 1234, Running: 5, Dead: 6},
		cost:   20 * time.Millisecond,
	}
	h := &f.stats.Lateness
	h.Counts[10], h.Counts[11], h.Max = 98, 2, 1_700_000
	h.P50, h.P99 = h.Quantile(0.5), h.Quantile(0.99)
	return f
}

// A queue, in every form.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeQueue()
		h := NewHandler()
		h.AddQueue("mails", f)
		h.AddQueue("a\xff\x1b", &fakeQueue{err: errors.New("<no>\x1b\xff")})
		require.Equal(t, "no wheels\n\n"+
			"queue \"mails\": not counted yet; ask again\n"+
			"  this process: 9 held, 4 of these claimed, 3 handlers; so far 100 attempts, 80 done, 15 failed, 2 died, 1 leases lost\n"+
			"  lateness since the start: p50 1.024ms, p99 1.7ms, max 1.7ms\n"+
			"queue \"a\\\\xff\\x1b\": not counted yet; ask again\n"+
			"  this process: 0 held, 0 of these claimed, 0 handlers; so far 0 attempts, 0 done, 0 failed, 0 died, 0 leases lost\n"+
			"  lateness since the start: nothing has fired\n", get(h, "/").Body.String())

		time.Sleep(time.Second)
		f.stats.Lateness.Counts[3] = 10
		f.stats.Unhandled = []UnhandledKind{{"nobody's\x1b", 90 * time.Second}}
		h.add("w", newFake())
		mails := queueFigures{
			Name: "mails", Age: time.Second, Stats: f.stats, Recent: recent{time.Second, f.stats.Lateness.Sub(newFakeQueue().stats.Lateness)},
			Counts: &tally{QueueCounts: f.counts, Took: 20 * time.Millisecond}, Since: 980 * time.Millisecond,
		}
		require.Equal(t, int64(10), mails.Recent.Lateness.Total())
		other := queueFigures{Name: `a\xff` + "\x1b", Age: time.Second, Recent: recent{Span: time.Second}, Since: time.Second,
			Counts: &tally{Error: "<no>\x1b" + `\xff`}}
		var form, one, event answer
		require.NoError(t, json.Unmarshal(get(h, "/?format=json").Body.Bytes(), &form))
		require.Equal(t, []queueFigures{mails, other}, form.Queues)
		require.NoError(t, json.Unmarshal(get(h, "/?format=json&wheel=w").Body.Bytes(), &one))
		require.Len(t, one.Wheels, 1)
		require.Empty(t, one.Queues)
		require.NotContains(t, get(h, "/?format=text&wheel=w").Body.String(), "queue \"")
		text := get(h, "/").Body.String()
		require.Contains(t, text, "\n\nqueue \"mails\": 1234 waiting, 5 running, 6 dead, counted 980ms ago\n")
		require.Contains(t, text, "\n  nobody runs \"nobody's\\x1b\": overdue by 1m30s\n")
		require.Contains(t, text, "\n  lateness of the last 1s: p50 8µs, p99 8µs, max 8µs\n")
		require.Contains(t, text, "\nqueue \"a\\\\xff\\x1b\": at least 0 waiting, 0 running, 0 dead, counted 1s ago, not all: \"<no>\\x1b\\\\xff\"\n")
		require.NoError(t, json.Unmarshal(h.event("w")[len("retry: 1000\ndata: "):], &event))
		require.Equal(t, []queueFigures{mails, other}, event.Queues)
	})
}

// However often the figures are asked for: counts are at least two seconds apart, take at
// most one part in share of the time, and end after ten seconds. Nobody waits for them.
func TestCostOfCounts(t *testing.T) {
	for _, test := range []struct {
		cost  time.Duration
		begun int64
	}{{0, 100}, {20 * time.Millisecond, 96}, {100 * time.Millisecond, 40}, {time.Second, 4}, {time.Hour, 1}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeQueue()
			f.cost = test.cost
			h := NewHandler()
			h.AddQueue("q", f)
			start := time.Now()
			for range 2000 {
				h.event("")
				require.LessOrEqual(t, f.begun.Load(), f.ended.Load()+1)
				synctest.Wait()
				time.Sleep(100 * time.Millisecond)
			}
			require.Equal(t, 200*time.Second, time.Since(start), "no event has waited")
			require.EqualValues(t, 2000, f.asked.Load())
			require.Equal(t, test.begun, f.begun.Load())
			time.Sleep(countTimeout)
			require.Equal(t, f.begun.Load(), f.ended.Load())
			last := h.queues[0].figures().Counts
			require.Equal(t, f.counts, last.QueueCounts, "as far as it came")
			require.Equal(t, min(test.cost, countTimeout), last.Took)
			require.Equal(t, test.cost > countTimeout, last.Error == "it takes longer than 10s")
			time.Sleep(time.Minute)
			require.Equal(t, f.begun.Load(), f.ended.Load())
		})
	}
}

// Queues are in the events, whether or not there is a wheel, and nothing counts after the
// last one who watches has gone.
func TestQueueInEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler()
		c, leave := stream(h, "", nil)
		require.Empty(t, c.next(h).Queues)
		f := newFakeQueue()
		h.AddQueue("a", f)
		require.Len(t, c.next(h).Queues, 1)
		require.Equal(t, f.counts, c.next(h).Queues[0].Counts.QueueCounts)
		leave()
		synctest.Wait()
		asked, begun := f.asked.Load(), f.begun.Load()
		time.Sleep(time.Hour)
		require.Equal(t, []int64{asked, begun}, []int64{f.asked.Load(), f.begun.Load()})
	})
}

// Queues come and go, beside other things of the same names.
func TestAddAndRemoveQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHandler()
		a, b := newFakeQueue(), newFakeQueue()
		a.cost, b.cost = 0, 0
		b.stats.Held = 2
		h.add("a", newFake())
		h.AddPool("a", pool.New(1, 0, pool.Wait))
		h.AddQueue("a", a)
		h.AddQueue("b", b)
		h.AddQueue("a", b)
		held := func() (n []int64) {
			for _, q := range figuresOfQueues(h.list().queues) {
				n = append(n, q.Stats.Held)
			}
			return n
		}
		require.Equal(t, []int64{2, 2}, held())
		h.AddQueue("a", a)
		require.Equal(t, []int64{9, 2}, held())
		h.RemoveQueue("c")
		h.RemoveQueue("a")
		require.Equal(t, []int64{2}, held())
		require.Len(t, h.wheels, 1, "the wheel is another thing")
		require.Len(t, h.pools, 1)
		h.Remove("b")
		h.RemovePool("b")
		h.RemovePurgatory("b")
		require.Equal(t, []int64{2}, held())
		h.AddQueue("x\xff", a)
		h.RemoveQueue("x\xff")
		require.Equal(t, []int64{2}, held())
		require.PanicsWithValue(t, "debug: AddQueue: nil queue", func() { h.AddQueue("a", nil) })
		require.PanicsWithValue(t, "debug: AddQueue: empty name", func() { h.AddQueue("", a) })
		require.Equal(t, []int64{2}, held())
	})
}
