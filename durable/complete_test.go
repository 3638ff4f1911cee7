package durable_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
)

// written is what a transaction does that is committed at once.
func written(ctx context.Context) func(driver.Worker, driver.Completion) error {
	return func(w driver.Worker, out driver.Completion) error { return w.Finish(ctx, []driver.Completion{out})[0] }
}

// undone is what is left of one that was rolled back.
func undone(driver.Worker, driver.Completion) error { return nil }

var errNo = errors.New("no")

// What was written in a handler's transaction says whether the job is done, if it was
// committed; if it was not the attempt has failed, whatever the handler returns.
func TestComplete(t *testing.T) {
	for name, c := range map[string]struct {
		write    func(context.Context) func(driver.Worker, driver.Completion) error
		returned error
		tries    int
		lastErr  string
		st       [4]int64 // done, failed, dead, lease lost
	}{
		"committed":                    {written, nil, 1, "", [4]int64{1, 0, 0, 0}},
		"committed, answer lost":       {written, errNo, 1, "", [4]int64{0, 0, 0, 1}},
		"rolled back":                  {rolledBack, errNo, 2, "no", [4]int64{0, 1, 1, 0}},
		"rolled back without an error": {rolledBack, nil, 2, "did not commit", [4]int64{0, 1, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *enginetest.Memory, q *durable.Queue) {
				tries := 0
				q.Handle("a", func(ctx context.Context, a *durable.Attempt) error {
					tries++
					require.NoError(t, driver.Complete(ctx, a, c.write(ctx)))
					return c.returned
				})
				stop := start(t, q)
				ref := add(t, q, durable.Job{Kind: "a", MaxAttempts: 2})[0]
				time.Sleep(time.Minute)
				stop()
				st := q.Stats()
				require.Equal(t, c.st, [4]int64{st.Done, st.Failed, st.Dead, st.LeaseLost})
				require.Equal(t, c.tries, tries)
				info, err := q.Get(t.Context(), ref)
				if c.lastErr == "" {
					require.ErrorIs(t, err, durable.ErrNotFound)
					return
				}
				require.NoError(t, err)
				require.Equal(t, durable.Dead, info.State)
				require.Contains(t, info.LastError, c.lastErr)
			})
		})
	}
}

func rolledBack(context.Context) func(driver.Worker, driver.Completion) error { return undone }

// A handler may roll back and try another transaction; one that fails leaves the end to
// what the handler returns; and when it has returned it is too late.
func TestCompleteAgain(t *testing.T) {
	bubble(t, func(t *testing.T, _ *enginetest.Memory, q *durable.Queue) {
		var tries atomic.Int32
		var late *durable.Attempt
		q.Handle("a", func(ctx context.Context, a *durable.Attempt) error {
			tries.Add(1)
			late = a
			require.NoError(t, driver.Complete(ctx, a, undone))
			require.NoError(t, driver.Complete(ctx, a, written(ctx)))
			require.ErrorIs(t, driver.Complete(ctx, a, written(ctx)), durable.ErrLeaseLost)
			return nil
		})
		q.Handle("b", func(ctx context.Context, a *durable.Attempt) error {
			tries.Add(1)
			require.ErrorIs(t, driver.Complete(ctx, a, func(driver.Worker, driver.Completion) error { return errNo }), errNo)
			return nil
		})
		stop := start(t, q)
		add(t, q, durable.Job{Kind: "a"}, durable.Job{Kind: "b"})
		time.Sleep(time.Minute)
		stop()
		require.EqualValues(t, 2, tries.Load())
		require.Equal(t, int64(2), q.Stats().Done)
		err := driver.Complete(t.Context(), late, func(driver.Worker, driver.Completion) error { panic("too late") })
		require.ErrorIs(t, err, durable.ErrLeaseLost)
		require.PanicsWithValue(t, "durable: Complete: the Attempt is not one that a handler received", func() {
			_ = driver.Complete(t.Context(), new(durable.Attempt), undone)
		})
	})
}

// What follows an occurrence is stored with its end: by the schedule as it is then, also if
// that was changed while the handler ran. Where the end was rolled back nothing follows.
func TestCompleteOccurrence(t *testing.T) {
	bubble(t, func(t *testing.T, _ *enginetest.Memory, q *durable.Queue) {
		var began []time.Duration
		opened := time.Now()
		q.Handle("a", func(ctx context.Context, a *durable.Attempt) error {
			began = append(began, time.Since(opened).Round(time.Second))
			switch len(began) {
			case 2:
				require.NoError(t, q.SetSchedule(ctx, "s", "@every 10s", durable.Job{Kind: "a"}))
			case 3:
				require.NoError(t, driver.Complete(ctx, a, undone))
				return durable.RetryAfter(3*time.Second, errNo)
			}
			return driver.Complete(ctx, a, written(ctx))
		})
		stop := start(t, q)
		require.NoError(t, q.SetSchedule(t.Context(), "s", "@every 1m", durable.Job{Kind: "a"}))
		time.Sleep(2*time.Minute + 25*time.Second)
		stop()
		for i, s := range []time.Duration{60, 120, 130, 133, 140} {
			require.Equal(t, s*time.Second, began[i], "%v", began)
		}
		require.Equal(t, []int64{4, 1}, []int64{q.Stats().Done, q.Stats().Failed})
		for info, err := range q.Schedules(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, opened.Add(140*time.Second), info.Last.Local().Truncate(0))
		}
	})
}

// A lease that is lost meanwhile undoes nothing that was committed.
func TestCompleteAndLoseTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sick{Engine: enginetest.NewMemory().Open(t), faults: map[string]error{}}
		q, err := durable.Open(t.Context(), s)
		require.NoError(t, err)
		defer q.Close()
		tries := 0
		q.Handle("a", func(ctx context.Context, a *durable.Attempt) error {
			tries++
			require.NoError(t, driver.Complete(ctx, a, written(ctx)))
			s.set("beat", errSilent)
			<-ctx.Done()
			s.set("beat", nil)
			return nil
		})
		stop := start(t, q)
		add(t, q, durable.Job{Kind: "a"})
		time.Sleep(5 * time.Minute)
		stop()
		require.Equal(t, []int64{1, 1, 0}, []int64{int64(tries), q.Stats().Done, q.Stats().LeaseLost})
	})
}
