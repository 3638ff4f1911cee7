package context_test

import (
	std "context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/dropin/context"
	"github.com/tickwheel/tickwheel/timingwheel"
)

var errMine = errors.New("mine")

// The four that have a deadline, which is d ahead.
var deadlines = map[string]struct {
	make  func(parent context.Context, d time.Duration) (context.Context, context.CancelFunc)
	cause error
}{
	"WithTimeout": {context.WithTimeout, context.DeadlineExceeded},
	"WithTimeoutCause": {func(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeoutCause(parent, d, errMine)
	}, errMine},
	"WithDeadline": {func(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
		return context.WithDeadline(parent, time.Now().Add(d))
	}, context.DeadlineExceeded},
	"WithDeadlineCause": {func(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
		return context.WithDeadlineCause(parent, time.Now().Add(d), errMine)
	}, errMine},
}

func TestDeadlinesAreOnTheWheel(t *testing.T) {
	for name, of := range deadlines {
		t.Run(name, func(t *testing.T) {
			w := timingwheel.Default()
			before := w.Len()
			_, cancel := of.make(context.Background(), time.Hour)
			require.Equal(t, before+1, w.Len())
			cancel()
			require.Equal(t, before, w.Len())

			start := time.Now()
			ctx, cancel := of.make(context.TODO(), 3*time.Millisecond)
			defer cancel()
			<-ctx.Done()
			require.GreaterOrEqual(t, time.Since(start), 3*time.Millisecond)
			require.Equal(t, std.DeadlineExceeded, ctx.Err())
			require.Equal(t, of.cause, context.Cause(ctx))
		})
	}
}

// The rest is the standard library's: contexts of either are parents of the other's.
func TestForwarded(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancelCause(context.WithValue(std.Background(), key{}, 7))
	timed, stop := context.WithTimeout(ctx, time.Hour)
	defer stop()
	child, stopChild := context.WithCancel(timed)
	defer stopChild()
	free := context.WithoutCancel(child)
	called := make(chan bool)
	context.AfterFunc(child, func() { close(called) })
	cancel(errMine)
	<-called
	<-child.Done()
	require.Equal(t, std.Canceled, child.Err())
	require.Equal(t, context.Canceled, child.Err())
	require.Equal(t, errMine, std.Cause(child))
	require.Equal(t, 7, child.Value(key{}))
	require.NoError(t, free.Err())
}
