package timingwheel_test

import (
	"github.com/tickwheel/tickwheel/timingwheel"

	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Shutdown waits for pending tasks of each form, however far off, and for running ones.
func TestShutdownWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, add := range map[string]func(w *timingwheel.TimingWheel, d time.Duration, f func()) error{
			"AfterFunc": func(w *timingwheel.TimingWheel, d time.Duration, f func()) error { w.AfterFunc(d, f); return nil },
			"Schedule": func(w *timingwheel.TimingWheel, d time.Duration, f func()) error {
				_, err := w.Schedule(d, f)
				return err
			},
			"ScheduleAt": func(w *timingwheel.TimingWheel, d time.Duration, f func()) error {
				_, err := w.ScheduleAt(time.Now().Add(d), f)
				return err
			},
			"Keyed": func(w *timingwheel.TimingWheel, d time.Duration, f func()) error {
				_, err := timingwheel.NewKeyed[int](w).Schedule(1, d, f)
				return err
			},
			"Submit": func(w *timingwheel.TimingWheel, d time.Duration, f func()) error {
				_, err := timingwheel.Submit(w, d, func(ctx context.Context) (int, error) { f(); return 0, ctx.Err() })
				return err
			},
		} {
			for _, d := range []time.Duration{-1, time.Millisecond, 1000 * time.Hour} {
				w := timingwheel.New()
				start, ran := time.Now(), false
				require.NoError(t, add(w, d, func() { time.Sleep(time.Minute); ran = true }))
				require.NoError(t, w.Shutdown(t.Context()))
				require.True(t, ran, name)
				require.Equal(t, max(0, d)+time.Minute, time.Since(start), name)
				require.True(t, w.Stats().Closed)
				require.Nil(t, w.Stop())
				requireAccounts(t, w.Stats())
			}
		}
	})
}

// From the call of Shutdown on, the wheel takes no new task. Pending tasks go on. Jobs and tickers
// end. Channel timers and contexts move to package time.
func TestShutdownClosesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithMaxPending(5), timingwheel.WithShards(4))
		start, ran := time.Now(), 0
		pending := w.AfterFunc(time.Minute, func() { ran++ })
		fired := w.AfterFunc(0, func() {})
		keyed := timingwheel.NewKeyed[int](w)
		_, err := keyed.Schedule(1, time.Minute, func() { ran++ })
		require.NoError(t, err)
		timeout, err := w.Schedule(time.Minute, func() { t.Error("ran though canceled") })
		require.NoError(t, err)
		var jobs []*timingwheel.Job
		running := make(chan struct{})
		jobs = append(jobs,
			mustJob(t)(w.ScheduleAtFixedRate(time.Hour, time.Hour, noop)),
			mustJob(t)(w.ScheduleWithFixedDelay(time.Hour, time.Hour, noop)),
			mustJob(t)(w.ScheduleFunc(everySecond{}, noop)))
		busy := mustJob(t)(w.ScheduleAtFixedRate(0, time.Second, func() { <-running }))
		ticker := w.NewTicker(time.Second)
		channel := w.NewTimer(30 * time.Second)
		ctx, cancel := w.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		synctest.Wait()

		done := make(chan error)
		go func() { done <- w.Shutdown(t.Context()) }()
		synctest.Wait()
		for _, job := range jobs {
			<-job.Done()
			require.ErrorIs(t, job.Err(), timingwheel.ErrStopped)
		}
		requireFull(t, w, timingwheel.ErrStopped)
		_, err = w.ScheduleAtFixedRate(0, 1, noop)
		require.ErrorIs(t, err, timingwheel.ErrStopped)
		_, err = w.ScheduleFunc(schedulerFunc(func(time.Time) time.Time { return time.Time{} }), noop)
		require.ErrorIs(t, err, timingwheel.ErrStopped, "also without a first time")
		require.Panics(t, func() { w.ScheduleFunc(everySecond{}, nil) })
		require.False(t, fired.Reset(0))
		require.True(t, pending.Reset(50*time.Second))
		replaced, err := keyed.Schedule(1, time.Second, func() { t.Error("ran though refused") })
		require.ErrorIs(t, err, timingwheel.ErrStopped)
		require.False(t, replaced)
		require.True(t, timeout.Cancel())
		require.Equal(t, 2, w.Len())
		requireAccounts(t, w.Stats())
		close(running)
		<-busy.Done()
		require.ErrorIs(t, busy.Err(), timingwheel.ErrStopped)
		require.EqualValues(t, 1, busy.Runs())
		require.Zero(t, time.Since(start))

		<-channel.C
		require.Equal(t, 30*time.Second, time.Since(start))
		<-ctx.Done()
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		require.Equal(t, 40*time.Second, time.Since(start))
		<-w.After(time.Second)
		require.Empty(t, ticker.C)
		require.NoError(t, <-done)
		require.Equal(t, time.Minute, time.Since(start))
		require.Equal(t, 2, ran)
		require.False(t, pending.Reset(0))
	})
}

// Traffic that pushes its timers back again and again does not prolong Shutdown. Reset returns
// false, and then the program can stop the timer.
func TestKeepAliveDoesNotProlongShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithShards(4))
		log := &timeLog{start: time.Now()}
		timer, stopped := w.AfterFunc(time.Minute, log.note), w.AfterFunc(time.Minute, log.note)
		for range 2 { // from the second on, a Reset takes no lock
			require.True(t, timer.Reset(time.Minute))
			require.True(t, stopped.Reset(time.Minute))
		}
		k := timingwheel.NewKeyed[string](w)
		for _, key := range []string{"reset", "schedule", "earlier"} {
			_, err := k.Schedule(key, time.Minute, log.note)
			require.NoError(t, err)
		}
		done := make(chan error, 1)
		go func() { done <- w.Shutdown(t.Context()) }()
		for range 59 {
			time.Sleep(time.Second)
			synctest.Wait()
			require.False(t, timer.Reset(time.Minute))
			require.False(t, stopped.Reset(time.Minute))
			require.False(t, k.Reset("reset", time.Minute))
			replaced, err := k.Schedule("schedule", time.Minute, func() { t.Error("a function that is new") })
			require.ErrorIs(t, err, timingwheel.ErrStopped)
			require.False(t, replaced)
			at, ok := k.Deadline("schedule")
			require.True(t, ok)
			require.Equal(t, log.start.Add(time.Minute), at, "what was refused changes nothing")
			verify(t, w)
		}
		require.True(t, stopped.Stop(), "it stays pending, and its handle with it")
		require.True(t, k.Reset("earlier", 0), "an earlier time is not refused")
		require.True(t, timer.Reset(time.Second), "nor the same")
		require.NoError(t, <-done)
		require.Equal(t, time.Minute, time.Since(log.start))
		require.Equal(t, []time.Duration{59 * time.Second, time.Minute, time.Minute, time.Minute}, log.take())
		require.EqualValues(t, 4+2, w.Stats().Reset)
		require.False(t, timer.Reset(time.Second))
	})
}

// When its context ends, Shutdown leaves pending tasks as they are. Stop hands them back. After
// that, Shutdown waits only for running tasks.
func TestShutdownGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		var ran atomic.Int64
		w.AfterFunc(time.Second, func() { ran.Add(1) })
		w.AfterFunc(2*time.Second, func() { ran.Add(1); time.Sleep(time.Minute); ran.Add(1) })
		w.AfterFunc(time.Hour, func() { t.Error("ran though handed back") })
		future, err := timingwheel.Submit(w, time.Hour, func(context.Context) (int, error) { return 0, nil })
		require.NoError(t, err)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		err = w.Shutdown(ended)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "timingwheel: Shutdown")
		require.Equal(t, 4, w.Len())

		short, cancel := context.WithTimeoutCause(t.Context(), 1500*time.Millisecond, errors.New("the cause"))
		defer cancel()
		require.ErrorIs(t, w.Shutdown(short), context.DeadlineExceeded)
		synctest.Wait()
		require.EqualValues(t, 1, ran.Load(), "what is pending fires all the same")
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 2, ran.Load())

		waiting := make(chan error)
		go func() { waiting <- w.Shutdown(t.Context()) }()
		synctest.Wait()
		stopped := time.Now()
		require.Len(t, w.Stop(), 1, "the future has ended instead")
		_, err = future.Wait(t.Context())
		require.ErrorIs(t, err, timingwheel.ErrStopped)
		require.NoError(t, w.Shutdown(t.Context()))
		require.NoError(t, <-waiting)
		require.EqualValues(t, 3, ran.Load())
		require.Equal(t, 59500*time.Millisecond, time.Since(stopped))
		require.NoError(t, w.Shutdown(ended), "nothing is left to wait for")
	})
}

// Several goroutines wait at the same time. One of them is a task, which waits for itself
// until its context ends.
func TestShutdownBySeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		start := time.Now()
		w.AfterFunc(0, func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, w.Shutdown(ctx), context.DeadlineExceeded)
		})
		synctest.Wait() // it has refused what is new
		require.ErrorIs(t, func() error { _, err := w.Schedule(0, noop); return err }(), timingwheel.ErrStopped)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				require.NoError(t, w.Shutdown(t.Context()))
				require.Equal(t, time.Second, time.Since(start))
			})
		}
		all.Wait()

		unused := timingwheel.New()
		require.NoError(t, unused.Shutdown(t.Context()))
		require.NoError(t, unused.Shutdown(t.Context()))
		require.Zero(t, unused.Stats().Scheduled)
	})
}

// Under manual drive Shutdown waits until somebody calls Drive.
func TestShutdownUnderManualDrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := manual()
		ran := 0
		for i := range 10 {
			w.AfterFunc(time.Duration(i)*time.Second, func() { ran++ })
		}
		done := make(chan error)
		go func() { done <- w.Shutdown(t.Context()) }()
		synctest.Wait()
		require.Equal(t, 10, w.Len())
		for w.Len() > 0 {
			w.Drive(time.Hour)
		}
		require.NoError(t, <-done)
		require.Equal(t, 10, ran)
		require.Zero(t, w.Drive(time.Hour))
	})
}

// The last task may end, or be canceled, just when Shutdown reads the counts. Then Shutdown must
// not wait for ever. A task that is added meanwhile has run when Shutdown returns, or was refused.
func TestShutdownRaces(t *testing.T) {
	rounds := unlessShort(3000, 500)
	goroutines := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for round := range rounds {
		w := timingwheel.New(timingwheel.WithTick(time.Microsecond), timingwheel.WithShards(1+round%4), timingwheel.WithExecutor(stressExecutors[round%len(stressExecutors)].executor()))
		var accepted, ended atomic.Int64
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for range 20 {
					timeout, err := w.Schedule(time.Duration(rand.IntN(10_000)), func() { ended.Add(1) })
					if err != nil {
						require.ErrorIs(t, err, timingwheel.ErrStopped)
						return
					}
					accepted.Add(1)
					if rand.IntN(4) == 0 && timeout.Cancel() {
						ended.Add(1)
					}
				}
			})
		}
		for range 2 {
			all.Go(func() {
				for range rand.IntN(30) {
					runtime.Gosched()
				}
				if err := w.Shutdown(ctx); err != nil {
					t.Errorf("%v: %+v", err, w.Stats())
				}
				if st := w.Stats(); st.Running != 0 || st.Pending != 0 || st.HandedBack != 0 {
					t.Errorf("Shutdown has left %+v", st)
				}
			})
		}
		all.Wait()
		require.Equal(t, accepted.Load(), ended.Load())
	}
	waitFor(t, func() bool { return runtime.NumGoroutine() <= goroutines })
}

// When the last pending task is canceled or handed back while nothing runs, Shutdown is notified.
func TestShutdownAfterTheLastIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(w *timingwheel.TimingWheel, timer *timingwheel.Timer, future *timingwheel.Future[int]){
			"cancel": func(_ *timingwheel.TimingWheel, timer *timingwheel.Timer, future *timingwheel.Future[int]) {
				timer.Stop()
				future.Cancel()
			},
			"stop": func(w *timingwheel.TimingWheel, _ *timingwheel.Timer, _ *timingwheel.Future[int]) { w.Stop() },
		} {
			w := timingwheel.New()
			timer := w.AfterFunc(time.Hour, noop)
			future, err := timingwheel.Submit(w, time.Hour, func(context.Context) (int, error) { return 0, nil })
			require.NoError(t, err)
			start, done := time.Now(), make(chan error)
			go func() { done <- w.Shutdown(t.Context()) }()
			time.Sleep(time.Second)
			end(w, timer, future)
			select {
			case err := <-done:
				require.NoError(t, err)
			case <-time.After(2 * time.Hour):
				require.Fail(t, "Shutdown was not told", name)
			}
			require.Equal(t, time.Second, time.Since(start))
		}
	})
}
