package jetstream_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/testservers/busy"
)

// A job that waits unclaimed in a worker for longer than marks are trusted runs, once.
func TestHeldForLong(t *testing.T) {
	t.Parallel()
	const age = 2 * time.Second
	clock := &serverClock{}
	b := newBook(t, clock)
	e := newStore(t, jetstream.Shift(clock.show), jetstream.StaleAge(age)).Open(t)
	q := b.open(e, 0, durable.WithConcurrency(1))
	q.Handle("long", func(context.Context, *durable.Attempt) error {
		time.Sleep(3 * age)
		return nil
	})
	_, err := q.Add(within(t), durable.Job{Kind: "long"})
	require.NoError(t, err)
	b.start(q)
	for range 23 {
		b.add(q, durable.Job{Kind: "plain"})
	}
	b.check()
}

// A handle that is stale is as good as another: what has ended is not begun, and what has
// not is not lost.
func TestConformanceOfStaleHandles(t *testing.T) {
	t.Parallel()
	enginetest.RunOnly(t, func(t testing.TB) enginetest.Store { return newStore(t, jetstream.StaleAge(time.Nanosecond)) },
		"StaleClaim", "TwoWorkers", "CancelAgainstClaim", "Deaths", "Accounts")
}

// two is a job that one worker has claimed and that was handed out to another, too.
type two struct {
	e             driver.Engine
	clock         *serverClock
	owner, other  driver.Worker
	mine, offered *driver.Delivery
	lease         time.Duration // of both
}

func newTwo(t *testing.T) *two {
	w := &two{clock: &serverClock{}, lease: busy.Longer(6 * time.Second)}
	w.clock.set(time.Hour)
	s := newStore(t, jetstream.Shift(w.clock.show))
	worker := func(name string) (driver.Worker, <-chan *driver.Delivery) {
		worker, err := s.Open(t).Work(within(t), driver.WorkConfig{
			Name: name, Kinds: driver.NewKindSet([]string{"plain"}), Lease: w.lease, Ahead: 500 * time.Millisecond, Retention: time.Hour,
		})
		require.NoError(t, err)
		held, done := make(chan *driver.Delivery, 100), make(chan struct{})
		ctx, stop := context.WithCancel(context.Background())
		go func() {
			defer close(done)
			worker.Fetch(ctx, func(hs []*driver.Delivery) {
				for _, h := range hs {
					held <- h
				}
				if name == "owner" {
					stop()
				}
			})
		}()
		t.Cleanup(func() { stop(); <-done })
		return worker, held
	}
	e := s.Open(t)
	w.e = e
	now, _, err := e.Now(within(t))
	require.NoError(t, err)
	at := now.Truncate(time.Microsecond)
	_, errs := e.Insert(within(t), []driver.Record{{ID: "x", Job: driver.Job{Kind: "plain", At: at, MaxAttempts: 9}, Due: at, Born: at}})
	require.NoError(t, errs[0])
	var held <-chan *driver.Delivery
	w.owner, held = worker("owner")
	w.mine = <-held
	await(t, func() string {
		if w.owner.Claim(within(t), []*driver.Delivery{w.mine})[0].Status != driver.Granted {
			return "the owner has not claimed it"
		}
		return ""
	})
	w.other, held = worker("other")
	select { // it is handed out again after a lease
	case w.offered = <-held:
	case <-time.After(patience):
		require.FailNow(t, "not handed out again")
	}
	if err := w.owner.Heartbeat(within(t)); err != nil {
		require.ErrorIs(t, err, durable.ErrLeaseLost) // it was over, and is renewed
	}
	return w
}

func (w *two) claim(t *testing.T) driver.ClaimStatus {
	w.offered.Exact = true // what was claimed by one who has died is a suspect
	return w.other.Claim(within(t), []*driver.Delivery{w.offered})[0].Status
}

// A dead worker whose last heartbeat lies in the future, since the clock was set back, keeps its
// jobs for its lease, not for the length of the step, nor for as long as the heartbeat is kept.
func TestDeadWorkerFromTheFuture(t *testing.T) {
	t.Parallel()
	for range 5 { // this machine may be too busy to see the heartbeat once more
		w := newTwo(t)
		w.clock.set(0)
		await(t, func() string {
			if w.claim(t) != driver.Granted {
				return "not taken over"
			}
			return ""
		})
		if jetstream.HasHeartbeat(within(t), w.e, "owner") {
			return
		}
	}
	require.FailNow(t, "taken over when the heartbeat was gone")
}

// A worker that lives keeps its jobs when the clock is set forward by more than a lease.
func TestLivingWorkerFromThePast(t *testing.T) {
	t.Parallel()
	for {
		w := newTwo(t)
		var slowest atomic.Int64
		beating, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		last := time.Now()
		go func() {
			defer close(done)
			for beating.Err() == nil {
				time.Sleep(w.lease / 6)
				if w.owner.Heartbeat(beating) == nil {
					slowest.Store(max(slowest.Load(), int64(time.Since(last))))
					last = time.Now()
				}
			}
		}()
		w.clock.set(2 * time.Hour)
		taken := false
		for end := time.Now().Add(2 * w.lease); time.Now().Before(end) && !taken; time.Sleep(10 * time.Millisecond) {
			taken = w.claim(t) == driver.Granted
		}
		stop()
		<-done
		if max(slowest.Load(), int64(time.Since(last))) > int64(w.lease/2) {
			t.Log("this machine is too busy for the lease; again")
			continue
		}
		require.False(t, taken, "a worker that has renewed its lease has lost its job")
		await(t, func() string { // it is silent now
			if w.claim(t) != driver.Granted {
				return "not taken over"
			}
			return ""
		})
		return
	}
}
