package enginetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// A listing has each job that exists from its begin to its end, however often that is moved,
// retried, or redriven and dead again meanwhile. In another order it would be in no place that is read.
func listMoving(t *testing.T, s Store) {
	r := open(t, s.Open(t), steady, backoff(20*time.Millisecond)).
		handle("fails", fails(errors.New("once more"))).start()
	far, near := time.Now().Add(48*time.Hour), 30*time.Minute
	moving := r.addMany(20, durable.Job{Kind: kind, At: far})
	retried := r.addMany(10, durable.Job{Kind: "fails", MaxAttempts: 1_000_000})
	redriven := r.addMany(10, durable.Job{Kind: "fails", MaxAttempts: 1})
	r.addMany(200, durable.Job{Kind: kind, At: far}) // so that a listing takes a while
	ctx, stop := context.WithCancel(within(t))
	moved := make(chan error, 1)
	go func() {
		var err error
		for n := 0; err == nil && ctx.Err() == nil; n++ {
			time.Sleep(time.Millisecond)
			for _, ref := range moving {
				at := far
				if n%2 == 0 {
					at = time.Now().Add(near)
				}
				if _, err = r.Reschedule(ctx, ref, at); err != nil {
					break
				}
			}
			for _, ref := range redriven {
				if e := r.Redrive(ctx, ref); e != nil && !errors.Is(e, durable.ErrNotFound) { // it runs
					err = e
				}
			}
		}
		if ctx.Err() != nil {
			err = nil
		}
		moved <- err
	}()
	want := append(append(moving, retried...), redriven...)
	for range 12 {
		listed := map[durable.Ref]bool{}
		for info, err := range r.All(within(t), durable.Filter{}) {
			r.ok(err)
			listed[info.Ref] = true
		}
		for i, ref := range want {
			require.True(t, listed[ref], "job %d of %d is left out", i, len(want))
		}
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	require.NoError(t, <-moved)
}
