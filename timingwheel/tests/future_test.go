package timingwheel_test

import (
	"github.com/tickwheel/tickwheel/timingwheel"

	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSubmit(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		boom := errors.New("boom")
		contexts := make(chan context.Context, 1)
		value, err := timingwheel.Submit(w, 10*msec, func(ctx context.Context) (string, error) {
			require.NoError(t, ctx.Err())
			contexts <- ctx
			time.Sleep(5 * msec)
			return "done", nil
		})
		require.NoError(t, err)
		failure, err := timingwheel.Submit(w, 10*msec, func(context.Context) (int, error) { return 7, boom })
		require.NoError(t, err)
		require.Equal(t, 2, w.Len())
		for range 3 {
			go func() {
				got, err := value.Wait(t.Context())
				require.NoError(t, err)
				require.Equal(t, "done", got)
				log.note()
			}()
		}
		got, err := failure.Wait(t.Context())
		require.Equal(t, boom, err)
		require.Equal(t, 7, got)
		<-value.Done()
		require.Equal(t, []time.Duration{15 * msec, 15 * msec, 15 * msec}, log.take())
		require.Error(t, (<-contexts).Err(), "it ends with the function")
		require.False(t, value.Cancel())
		again, err := value.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, "done", again)

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		again, err = value.Wait(ended)
		require.NoError(t, err, "a result that is there comes first")
		require.Equal(t, "done", again)
	})
}

func TestFutureOfAPanicAndAGoexit(t *testing.T) {
	boom := errors.New("boom")
	w := timingwheel.New(timingwheel.WithPanicHandler(func(any, []byte) { t.Error("a Future's panic is its own") }))
	defer w.Stop()
	panics, err := timingwheel.Submit(w, 0, func(context.Context) (int, error) { panic(boom) })
	require.NoError(t, err)
	_, err = panics.Wait(t.Context())
	require.ErrorIs(t, err, boom)
	var failure *timingwheel.PanicError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, boom, failure.Value)
	require.Contains(t, string(failure.Stack), "future_test.go")
	require.EqualError(t, err, "timingwheel: panic: boom")
	exits, err := timingwheel.Submit(w, 0, func(context.Context) (int, error) { runtime.Goexit(); return 1, nil })
	require.NoError(t, err)
	_, err = exits.Wait(t.Context())
	require.EqualError(t, err, "timingwheel: the function ended its goroutine")
}

func TestFutureCancel(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		pending, err := timingwheel.Submit(w, time.Hour, func(context.Context) (int, error) { panic("must not run") })
		require.NoError(t, err)
		require.True(t, pending.Cancel())
		require.False(t, pending.Cancel())
		require.Zero(t, w.Len())
		_, err = pending.Wait(t.Context())
		require.Equal(t, timingwheel.ErrCanceled, err)

		var cause error
		running, err := timingwheel.Submit(w, 0, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			log.note()
			return 3, nil
		})
		require.NoError(t, err)
		time.Sleep(5 * msec)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*msec, errors.New("tired of waiting"))
		defer cancel()
		_, err = running.Wait(ctx)
		require.EqualError(t, err, "tired of waiting")
		require.True(t, running.Cancel())
		got, err := running.Wait(t.Context())
		require.Equal(t, timingwheel.ErrCanceled, err)
		require.Zero(t, got)
		require.Equal(t, []time.Duration{10 * msec}, log.take())
		require.Equal(t, timingwheel.ErrCanceled, cause)
		require.False(t, running.Cancel())
		got, _ = running.Wait(t.Context())
		require.Zero(t, got, "what it returned later is forgotten")
	})
}

func TestFutureCancelWinsAgainstTheQueue(t *testing.T) {
	var queue []func()
	w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) { queue = append(queue, task) })))
	defer w.Stop()
	future, err := timingwheel.Submit(w, 0, func(context.Context) (int, error) {
		t.Error("it runs, though it was canceled")
		return 0, nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, w.Drive(0))
	require.True(t, future.Cancel())
	queue[0]()
	_, err = future.Wait(t.Context())
	require.Equal(t, timingwheel.ErrCanceled, err)
}

func TestFuturesEndWithTheWheel(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		pending, err := timingwheel.Submit(w, time.Hour, func(context.Context) (int, error) { panic("must not run") })
		require.NoError(t, err)
		running, err := timingwheel.Submit(w, 0, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 5, context.Cause(ctx)
		})
		require.NoError(t, err)
		synctest.Wait()
		require.Nil(t, w.Stop())
		_, err = pending.Wait(t.Context())
		require.Equal(t, timingwheel.ErrStopped, err)
		got, err := running.Wait(t.Context())
		require.Equal(t, timingwheel.ErrStopped, err, "as the function chose to return")
		require.Equal(t, 5, got)
		_, err = timingwheel.Submit(w, 0, func(context.Context) (int, error) { return 0, nil })
		require.Equal(t, timingwheel.ErrStopped, err)
	})
}

// Each future has one result, whoever comes first, and all who wait get the same.
func TestFutureRaces(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(time.Microsecond))
	defer w.Stop()
	for i := range 2000 {
		var ran atomic.Bool
		future, err := timingwheel.Submit(w, time.Duration(i%20)*time.Microsecond, func(ctx context.Context) (int, error) {
			ran.Store(true)
			return 1, nil
		})
		require.NoError(t, err)
		var wg sync.WaitGroup
		var canceled atomic.Int64
		for range 2 {
			wg.Go(func() {
				runtime.Gosched()
				if future.Cancel() {
					canceled.Add(1)
				}
			})
			wg.Go(func() {
				_, err := future.Wait(context.Background())
				again, err2 := future.Wait(context.Background())
				if err != err2 || (err == nil) != (again == 1) {
					t.Errorf("%v, then %v", err, err2)
				}
			})
		}
		wg.Wait()
		_, err = future.Wait(t.Context())
		if canceled.Load() == 1 {
			require.Equal(t, timingwheel.ErrCanceled, err)
		} else {
			require.NoError(t, err)
			require.True(t, ran.Load())
			require.Zero(t, canceled.Load())
		}
	}
	require.Zero(t, w.Len())
}

// Functions that ran at the same time leave nothing when they have ended.
func TestManyFuturesAtOnceLeaveNothing(t *testing.T) {
	const futures = 20_000
	w := timingwheel.New(timingwheel.WithShards(2)) // each has up to 120 KB of its own once it was used
	defer w.Stop()
	together := func(start func(f func())) { // runs as many functions at the same time
		var running, ended atomic.Int64
		release := make(chan struct{})
		for range futures {
			start(func() {
				running.Add(1)
				<-release
				ended.Add(1)
			})
		}
		waitFor(t, func() bool { return running.Load() == futures })
		close(release)
		waitFor(t, func() bool { return ended.Load() == futures && w.Stats().Running == 0 })
	}
	together(func(f func()) { go f() }) // the runtime keeps 400 bytes of each goroutine
	before := heapInUse()
	together(func(f func()) {
		_, err := timingwheel.Submit(w, 0, func(ctx context.Context) (int, error) { f(); return 0, ctx.Err() })
		require.NoError(t, err)
	})
	waitFor(t, func() bool { return heapInUse() < before+300<<10 })
}

// Stop ends the contexts of the functions that run, and of those that begin later.
func TestStopEndsTheContextsOfFutures(t *testing.T) {
	var queue []func()
	w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithShards(2), timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) { queue = append(queue, task) })))
	var causes []error
	note := func(ctx context.Context) (int, error) {
		<-ctx.Done()
		causes = append(causes, context.Cause(ctx))
		return 0, ctx.Err()
	}
	inside, err := timingwheel.Submit(w, 0, func(ctx context.Context) (int, error) {
		child, cancel := context.WithCancel(ctx)
		defer cancel()
		require.NoError(t, ctx.Err())
		w.Stop()
		<-child.Done()
		return note(ctx)
	})
	require.NoError(t, err)
	later, err := timingwheel.Submit(w, 0, note)
	require.NoError(t, err)
	require.Equal(t, 2, w.Drive(0))
	for _, task := range queue {
		task()
	}
	require.Equal(t, []error{timingwheel.ErrStopped, timingwheel.ErrStopped}, causes)
	for _, f := range []*timingwheel.Future[int]{inside, later} {
		_, err := f.Wait(t.Context())
		require.Equal(t, context.Canceled, err)
	}
}
