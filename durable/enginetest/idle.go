package enginetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// RunUntilIdle runs all that is due and all that comes of it within its bound, also retries and jobs
// that handlers add, and leaves what it cannot run: what is later, is paused, waits for a permit that
// others have, has no handler, or is claimed by another.
func untilIdle(t *testing.T, s Store) {
	r := open(t, s.Open(t), steady, backoff(300*time.Millisecond))
	r.handle(kind, nil).handle("covered", nil)
	r.handle("fails once", func(_ context.Context, a *durable.Attempt) error {
		if a.Number == 1 {
			return errTest
		}
		return nil
	})
	r.handle("fails for long", fails(durable.RetryAfter(time.Hour, errTest)))
	r.handle("dies", fails(durable.Discard(errTest)))
	r.handle("adds", func(ctx context.Context, a *durable.Attempt) error {
		if a.Number == 1 {
			return durable.RetryAfter(0, errTest)
		}
		left := atoi(t, a.Job.Payload)
		if left > 0 {
			r.add(durable.Job{Kind: "adds", Payload: append(a.Job.Payload[:0], byte('0'+left-1))})
		}
		return nil
	})
	r.limit("full", durable.Limit{PerLane: true, Running: 1})
	w := newCrashing(t, s.Open(t), "other", func(c *driver.WorkConfig) {
		c.Kinds, c.Lease = driver.NewKindSet([]string{"another's"}), time.Hour
	})
	has := r.add(durable.Job{Kind: "another's", Lane: "full"})[0]
	h := w.take(has)
	w.granted(h)
	w.stop()
	r.pause(durable.Pausable{Kind: "covered", Lane: "paused"})
	const paused = 120 // more than a look reads at once
	many := r.addMany(paused, durable.Job{Kind: "covered", Lane: "paused"})
	left := r.add(durable.Job{Kind: "covered", Lane: "full"}, durable.Job{Kind: "nobody's"},
		durable.Job{Kind: kind, After: time.Hour})
	r.pause(durable.Pausable{Kind: "fails once"})
	left = append(left, r.add(durable.Job{Kind: "fails once"})...)

	ran, err := r.RunUntilIdle(within(t), 0)
	r.ok(err)
	require.Equal(t, durable.Ran{}, ran, "nothing can run")
	r.resume(durable.Pausable{Kind: "fails once"})
	left = append(left[:len(left)-1], r.add(durable.Job{Kind: "fails for long"}, durable.Job{Kind: "dies"})...)
	r.add(durable.Job{Kind: "adds", Payload: []byte("9")}, durable.Job{Kind: kind, After: time.Second}, durable.Job{Kind: "covered", After: 2 * time.Second})
	r.addMany(200, durable.Job{Kind: kind})
	ran, err = r.RunUntilIdle(within(t), 5*time.Minute)
	r.ok(err)
	require.Equal(t, durable.Ran{Attempts: 2 + 2 + 20 + 202, Done: 1 + 10 + 202, Failed: 1 + 1 + 10, Dead: 1}, ran)
	for _, ref := range left {
		require.NotEqual(t, durable.Running, r.get(ref).State)
	}
	require.Len(t, r.matching(durable.Filter{}), len(left)+paused+1, "and the one that another has claimed")

	r.resume(durable.Pausable{Kind: "covered", Lane: "paused"})
	w.end(h, driver.Done)
	r.cancelAll(many[1:])
	ran, err = r.RunUntilIdle(within(t), -time.Hour)
	r.ok(err)
	require.Equal(t, durable.Ran{Attempts: 2, Done: 2}, ran, "they wait no longer for a pause and a permit")

	r.add(durable.Job{Kind: kind, After: 30 * time.Minute})
	ctx, cancel := context.WithCancelCause(within(t))
	time.AfterFunc(300*time.Millisecond, func() { cancel(errTest) })
	_, err = r.RunUntilIdle(ctx, time.Hour)
	require.True(t, errors.Is(err, errTest), "%v", err)
	time.AfterFunc(300*time.Millisecond, func() { _ = r.Close() })
	_, err = r.RunUntilIdle(within(t), time.Hour)
	require.ErrorIs(t, err, durable.ErrClosed)
}
