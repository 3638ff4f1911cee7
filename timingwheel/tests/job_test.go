package timingwheel_test

import (
	"github.com/tickwheel/tickwheel/timingwheel"

	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
)

func TestFixedRate(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		job := mustJob(t)(w.ScheduleAtFixedRate(5*msec, 1500*time.Microsecond, log.note))
		next, ok := job.Next()
		require.True(t, ok)
		require.Equal(t, log.start.Add(5*msec), next)
		time.Sleep(10 * msec)
		require.Equal(t, []time.Duration{5 * msec, 7 * msec, 8 * msec, 10 * msec}, log.take(), "planned exactly, run on ticks")
		require.EqualValues(t, 4, job.Runs())
		next, ok = job.Next()
		require.True(t, ok)
		require.Equal(t, log.start.Add(11*msec), next)
		require.NoError(t, job.Err())
		require.True(t, job.Stop())
		require.False(t, job.Stop())
		<-job.Done()
		require.Equal(t, timingwheel.ErrCanceled, job.Err())
		_, ok = job.Next()
		require.False(t, ok)
		require.Zero(t, w.Len())
		time.Sleep(second)
		require.Empty(t, log.take())
	})
}

// However many periods, each a little off the tick: they do not drift by a nanosecond.
func TestFixedRateDoesNotDrift(t *testing.T) {
	periods := time.Duration(unlessShort(100_000, 10_000))
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		period := 10*msec + 333*time.Nanosecond
		runs := 0
		job := mustJob(t)(w.ScheduleAtFixedRate(0, period, func() { runs++ }))
		time.Sleep(periods*period + msec)
		synctest.Wait()
		require.EqualValues(t, periods+1, runs)
		next, ok := job.Next()
		require.True(t, ok)
		require.Equal(t, log.start.Add((periods+1)*period), next)
	}, timingwheel.WithExecutor(timingwheel.Inline()))
}

func TestFixedDelay(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		job := mustJob(t)(w.ScheduleWithFixedDelay(-second, 10*msec, func() { log.note(); time.Sleep(5 * msec) }))
		time.Sleep(48 * msec)
		require.Equal(t, []time.Duration{0, 15 * msec, 30 * msec, 45 * msec}, log.take())
		_, ok := job.Next()
		require.False(t, ok, "planned when the run is over")
		require.NoError(t, job.StopWait(t.Context()))
		require.Equal(t, 50*msec, time.Since(log.start), "it waited for the run")
	})
}

// Each policy, with a function that once takes longer than its period, and with a process
// that is paused: under manual drive nothing runs until it is driven.
func TestMissedRuns(t *testing.T) {
	type kind struct {
		name   string
		policy []timingwheel.JobOption
		slow   []int // in seconds, with a first run of 2.5 s
		paused []int // in seconds, with a pause from 1.5 to 4.5 s
	}
	at := func(tenths ...int) []int { return tenths }
	for _, k := range []kind{
		{"default", nil, at(10, 35, 35, 40, 50), at(10, 45, 45, 45, 50)},
		{"burst", []timingwheel.JobOption{timingwheel.OnMissed(timingwheel.MissedBurst)}, at(10, 35, 35, 40, 50), at(10, 45, 45, 45, 50)},
		{"skip", []timingwheel.JobOption{timingwheel.OnMissed(timingwheel.MissedSkip)}, at(10, 40, 50, 60), at(10, 45, 50, 60)},
		{"delay", []timingwheel.JobOption{timingwheel.OnMissed(timingwheel.MissedDelay)}, at(10, 45, 55, 65), at(10, 45, 55, 65)},
		{"calendar", nil, at(10, 40, 50, 60), at(10, 45, 50, 60)},
		{"calendar burst", []timingwheel.JobOption{timingwheel.OnMissed(timingwheel.MissedBurst)}, at(10, 35, 35, 40, 50), at(10, 45, 45, 45, 50)},
		{"calendar delay", []timingwheel.JobOption{timingwheel.OnMissed(timingwheel.MissedDelay)}, at(10, 40, 50, 60), at(10, 45, 50, 60)},
	} {
		start := func(w *timingwheel.TimingWheel, f func()) (*timingwheel.Job, error) {
			if len(k.name) >= 8 && k.name[:8] == "calendar" {
				return w.ScheduleFunc(everySecond{}, f, k.policy...)
			}
			return w.ScheduleAtFixedRate(second, second, f, k.policy...)
		}
		tenths := func(times []time.Duration) (n []int) {
			for _, d := range times {
				n = append(n, int(d/(100*msec)))
			}
			return n
		}
		t.Run(k.name+"/slow", func(t *testing.T) {
			jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
				job := mustJob(t)(start(w, func() {
					log.note()
					if len(log.times) == 1 {
						time.Sleep(2500 * msec)
					}
				}))
				time.Sleep(time.Duration(k.slow[len(k.slow)-1])*100*msec + msec)
				require.Equal(t, k.slow, tenths(log.take()))
				job.Stop()
			})
		})
		t.Run(k.name+"/paused", func(t *testing.T) {
			jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
				job := mustJob(t)(start(w, log.note))
				for now := range 200 {
					if now <= 15 || now >= 45 {
						for w.Drive(0) > 0 {
						}
					}
					if now == k.paused[len(k.paused)-1] {
						break
					}
					time.Sleep(100 * msec)
				}
				require.Equal(t, k.paused, tenths(log.take()))
				job.Stop()
			}, timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.Inline()))
		})
	}
}

// A run that takes exactly a period misses nothing.
func TestRunsBackToBack(t *testing.T) {
	for _, policy := range []timingwheel.MissedPolicy{timingwheel.MissedBurst, timingwheel.MissedSkip, timingwheel.MissedDelay} {
		jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
			run := func() { log.note(); time.Sleep(second) }
			rate := mustJob(t)(w.ScheduleAtFixedRate(second, second, run, timingwheel.OnMissed(policy)))
			calendar := mustJob(t)(w.ScheduleFunc(everySecond{}, run, timingwheel.OnMissed(policy)))
			time.Sleep(3500 * msec)
			require.Equal(t, []time.Duration{second, second, 2 * second, 2 * second, 3 * second, 3 * second}, log.take())
			require.NoError(t, rate.StopWait(t.Context()))
			require.NoError(t, calendar.StopWait(t.Context()))
		})
	}
}

func TestRunsDoNotOverlapAndSeeEachOther(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(10 * time.Microsecond))
	defer w.Stop()
	runs := 0 // not atomic, on purpose: the race detector checks what is promised
	var running atomic.Bool
	job := mustJob(t)(w.ScheduleAtFixedRate(0, 10*time.Microsecond, func() {
		if running.Swap(true) {
			t.Error("two runs at the same time")
		}
		if runs++; runs%50 == 0 {
			time.Sleep(msec)
		}
		running.Store(false)
		if runs%70 == 0 {
			runtime.Goexit()
		}
	}))
	waitFor(t, func() bool { return job.Runs() > 500 })
	require.NoError(t, job.StopWait(t.Context()))
	require.EqualValues(t, runs, job.Runs())
}

// When Stop has returned, no run begins, whatever was under way.
func TestJobStopIsDefinitive(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(time.Microsecond), timingwheel.WithWheelSize(2))
	defer w.Stop()
	// On one processor each Gosched may take as long as a slice of the scheduler's.
	for begin := time.Now(); time.Since(begin) < second; {
		var stopped atomic.Bool
		job := mustJob(t)(w.ScheduleAtFixedRate(0, time.Microsecond, func() {
			if stopped.Load() {
				t.Error("a run began after Stop")
			}
		}))
		for range rand.IntN(100) {
			runtime.Gosched()
		}
		var ended atomic.Int64
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if job.Stop() {
					ended.Add(1)
				}
			})
		}
		wg.Wait()
		<-job.Done() // the run that had begun has ended
		stopped.Store(true)
		require.EqualValues(t, 1, ended.Load())
	}
	require.Zero(t, w.Len())
}

func TestJobStopsItself(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		known := make(chan *timingwheel.Job, 1)
		job := mustJob(t)(w.ScheduleAtFixedRate(msec, msec, func() {
			job := <-known
			log.note()
			require.True(t, job.Stop())
			select {
			case <-job.Done():
				t.Error("done, while it runs")
			default:
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(), 3*msec, errors.New("as the doc says"))
			defer cancel()
			require.EqualError(t, job.StopWait(ctx), "as the doc says")
		}))
		known <- job
		<-job.Done()
		require.Equal(t, 4*msec, time.Since(log.start))
		time.Sleep(second)
		require.Len(t, log.take(), 1)
		require.Equal(t, timingwheel.ErrCanceled, job.Err())
		require.NoError(t, job.StopWait(t.Context()))
	})
}

// A run that waits in the executor's queue does not begin after Stop.
func TestJobStopWinsAgainstTheQueue(t *testing.T) {
	var queue []func()
	w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) { queue = append(queue, task) })))
	defer w.Stop()
	job := mustJob(t)(w.ScheduleAtFixedRate(0, time.Hour, func() { t.Error("a run began after Stop") }))
	require.Equal(t, 1, w.Drive(0))
	require.True(t, job.Stop())
	<-job.Done()
	queue[0]()
	require.Zero(t, job.Runs())
}

func TestJobReset(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		var slow atomic.Bool
		job := mustJob(t)(w.ScheduleAtFixedRate(10*msec, 10*msec, func() {
			log.note()
			if slow.Load() {
				time.Sleep(4 * msec)
			}
		}))
		time.Sleep(25 * msec)
		require.True(t, job.Reset(2*msec))
		time.Sleep(4 * msec)
		require.Equal(t, []time.Duration{10 * msec, 20 * msec, 27 * msec, 29 * msec}, log.take())
		require.True(t, job.Reset(100*msec))
		slow.Store(true)
		time.Sleep(100*msec + 2*msec)
		require.Equal(t, []time.Duration{129 * msec}, log.take())
		require.True(t, job.Reset(10*msec), "while it runs, at 131 ms")
		time.Sleep(20 * msec)
		require.Equal(t, []time.Duration{141 * msec, 151 * msec}, log.take())
		require.NoError(t, job.StopWait(t.Context()))
		require.False(t, job.Reset(msec))
		require.Zero(t, w.Len())

		job = mustJob(t)(w.ScheduleFunc(everySecond{}, log.note))
		require.False(t, job.Reset(msec))
		require.PanicsWithValue(t, "timingwheel: Job.Reset: non-positive period", func() { job.Reset(0) })
	})
}

// A run that waits in the executor's queue is the next one, and stays planned for its own time when
// the job is reset.
func TestNextOfAQueuedRunAfterReset(t *testing.T) {
	jobBubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, log *timeLog) {
		var queue []func()
		w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) { queue = append(queue, task) })))
		defer w.Stop()
		start := time.Now()
		job := mustJob(t)(w.ScheduleAtFixedRate(10*msec, 20*msec, func() {}))
		require.Equal(t, 1, w.Drive(time.Second))
		time.Sleep(5 * msec)
		require.True(t, job.Reset(100*msec))
		next, ok := job.Next()
		require.True(t, ok)
		require.Equal(t, 10*msec, next.Sub(start))
		time.Sleep(5 * msec)
		queue[0]()
		next, _ = job.Next()
		require.Equal(t, 115*msec, next.Sub(start), "the period counts from Reset")
	})
}

func TestJobsEndWithTheWheel(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		release := make(chan struct{})
		pending := mustJob(t)(w.ScheduleAtFixedRate(time.Hour, time.Hour, log.note))
		daily := mustJob(t)(w.ScheduleFunc(everySecond{}, log.note))
		running := mustJob(t)(w.ScheduleAtFixedRate(0, msec, func() { <-release }))
		synctest.Wait()
		require.Nil(t, w.Stop(), "jobs are not handed back")
		for _, job := range []*timingwheel.Job{pending, daily} {
			<-job.Done()
			require.Equal(t, timingwheel.ErrStopped, job.Err())
			require.False(t, job.Stop())
		}
		require.NoError(t, running.Err(), "it goes on until its run is over")
		close(release)
		<-running.Done()
		require.Equal(t, timingwheel.ErrStopped, running.Err())
		require.EqualValues(t, 1, running.Runs())

		_, err := w.ScheduleAtFixedRate(0, 1, log.note)
		require.Equal(t, timingwheel.ErrStopped, err)
		_, err = w.ScheduleWithFixedDelay(0, 1, log.note)
		require.Equal(t, timingwheel.ErrStopped, err)
		_, err = w.ScheduleFunc(everySecond{}, log.note)
		require.Equal(t, timingwheel.ErrStopped, err)
		require.Empty(t, log.take())
	})
}

func TestJobThatPanics(t *testing.T) {
	var recovered any
	var trace []byte
	handler := timingwheel.WithPanicHandler(func(r any, stack []byte) { recovered, trace = r, stack })
	cause := errors.New("boom")
	for name, start := range map[string]func(w *timingwheel.TimingWheel) (*timingwheel.Job, error){
		"run": func(w *timingwheel.TimingWheel) (*timingwheel.Job, error) {
			return w.ScheduleAtFixedRate(msec, msec, func() { panic(cause) })
		},
		"scheduler": func(w *timingwheel.TimingWheel) (*timingwheel.Job, error) {
			calls := 0
			return w.ScheduleFunc(schedulerFunc(func(prev time.Time) time.Time {
				if calls++; calls > 1 {
					panic(cause)
				}
				return prev.Add(msec)
			}), func() {})
		},
	} {
		t.Run(name, func(t *testing.T) {
			recovered = nil
			jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
				mustJob(t)(w.ScheduleAtFixedRate(msec, msec, log.note))
				job := mustJob(t)(start(w))
				<-job.Done()
				synctest.Wait()
				require.Equal(t, cause, recovered)
				require.Contains(t, string(trace), "job_test.go")
				require.ErrorIs(t, job.Err(), cause)
				require.EqualError(t, job.Err(), "timingwheel: panic: boom")
				var failure *timingwheel.PanicError
				require.ErrorAs(t, job.Err(), &failure)
				require.Contains(t, string(failure.Stack), "job_test.go")
				require.EqualValues(t, 1, job.Runs())
				time.Sleep(10 * msec)
				require.Len(t, log.take(), 11, "others go on")
			}, handler)
		})
	}
	t.Run("without a handler", func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.Inline()))
		defer w.Stop()
		job := mustJob(t)(w.ScheduleAtFixedRate(0, msec, func() { panic(cause) }))
		require.PanicsWithValue(t, cause, func() { w.Drive(0) })
		<-job.Done()
		require.ErrorIs(t, job.Err(), cause)
		require.Zero(t, w.Len())
	})
}

// panicLog notes what a panic handler is called with. The next run is planned before the
// handler is called, so that a call may go on while the next run panics.
type panicLog struct {
	mu     sync.Mutex
	values []any
}

func (l *panicLog) note(recovered any, _ []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.values = append(l.values, recovered)
}

func (l *panicLog) take() (values []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	values, l.values = l.values, nil
	return values
}

// With SurvivePanics the runs go on at their times, whatever the kind of the job.
func TestJobThatSurvivesPanics(t *testing.T) {
	var handled panicLog
	for name, start := range map[string]func(w *timingwheel.TimingWheel, f func()) (*timingwheel.Job, error){
		"rate": func(w *timingwheel.TimingWheel, f func()) (*timingwheel.Job, error) {
			return w.ScheduleAtFixedRate(msec, msec, f, timingwheel.SurvivePanics())
		},
		"delay": func(w *timingwheel.TimingWheel, f func()) (*timingwheel.Job, error) {
			return w.ScheduleWithFixedDelay(msec, msec, f, timingwheel.SurvivePanics())
		},
		"calendar": func(w *timingwheel.TimingWheel, f func()) (*timingwheel.Job, error) {
			next := func(prev time.Time) time.Time { return prev.Add(msec) }
			return w.ScheduleFunc(schedulerFunc(next), f, timingwheel.SurvivePanics())
		},
	} {
		t.Run(name, func(t *testing.T) {
			handled.take()
			jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
				n := 0
				job := mustJob(t)(start(w, func() {
					log.note()
					switch n++; n % 3 {
					case 0:
						panic(n)
					case 1:
						runtime.Goexit()
					}
				}))
				time.Sleep(9*msec + 1)
				require.Equal(t, []time.Duration{1, 2, 3, 4, 5, 6, 7, 8, 9}, milliseconds(log.take()))
				require.Equal(t, []any{3, 6, 9}, handled.take())
				require.EqualValues(t, 9, job.Runs())
				require.EqualValues(t, 3, w.Stats().Panicked)
				require.NoError(t, job.Err())
				require.True(t, job.Stop())
				<-job.Done()
				time.Sleep(10 * msec)
				require.Empty(t, log.take())
			}, timingwheel.WithPanicHandler(handled.note), timingwheel.WithShards(1))
		})
	}
}

// milliseconds returns how many whole milliseconds each is.
func milliseconds(ds []time.Duration) []time.Duration {
	for i := range ds {
		ds[i] /= msec
	}
	return ds
}

func TestJobThatCannotSurvive(t *testing.T) {
	boom, cause := errors.New("boom"), errors.New("the Scheduler's")
	t.Run("its Scheduler", func(t *testing.T) {
		var handled panicLog
		jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
			calls := 0
			job := mustJob(t)(w.ScheduleFunc(schedulerFunc(func(prev time.Time) time.Time {
				if calls++; calls > 2 {
					panic(cause)
				}
				return prev.Add(msec)
			}), func() { panic(boom) }, timingwheel.SurvivePanics()))
			<-job.Done()
			synctest.Wait()
			require.ErrorIs(t, job.Err(), cause)
			require.Equal(t, []any{boom, boom}, handled.take())
			require.EqualValues(t, 2, job.Runs())
		}, timingwheel.WithPanicHandler(handled.note))
	})
	t.Run("without a handler", func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.Inline()))
		defer w.Stop()
		job := mustJob(t)(w.ScheduleAtFixedRate(0, 1, func() { panic(boom) }, timingwheel.SurvivePanics()))
		for range 3 { // a caller that recovers the panic itself also keeps the job running
			require.PanicsWithValue(t, boom, func() {
				for {
					w.Drive(time.Second)
				}
			})
		}
		require.EqualValues(t, 3, job.Runs())
		require.NoError(t, job.Err())
	})
	t.Run("Stop", func(t *testing.T) {
		jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
			var job *timingwheel.Job
			known := make(chan struct{})
			job = mustJob(t)(w.ScheduleAtFixedRate(0, msec, func() { <-known; job.Stop(); panic(boom) }, timingwheel.SurvivePanics()))
			close(known)
			<-job.Done()
			require.Equal(t, timingwheel.ErrCanceled, job.Err())
			require.EqualValues(t, 1, job.Runs())
		}, timingwheel.WithPanicHandler(func(any, []byte) {}))
	})
}

// A Scheduler that ends its goroutine ends the job. A Scheduler whose job was stopped is
// not asked any more, however many runs were missed.
func TestSchedulerThatMisbehaves(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		asked := 0
		job := mustJob(t)(w.ScheduleFunc(schedulerFunc(func(prev time.Time) time.Time {
			if asked++; asked > 1 {
				runtime.Goexit()
			}
			return prev.Add(msec)
		}), log.note))
		<-job.Done()
		require.EqualError(t, job.Err(), "timingwheel: the function ended its goroutine")

		var endless *timingwheel.Job
		known := make(chan struct{})
		endless = mustJob(t)(w.ScheduleFunc(schedulerFunc(func(prev time.Time) time.Time {
			if prev.After(log.start.Add(2 * msec)) { // a million calls later
				endless.Stop()
			}
			return prev.Add(1)
		}), func() { <-known; time.Sleep(second) }))
		close(known)
		<-endless.Done()
		require.Equal(t, timingwheel.ErrCanceled, endless.Err())

		stopped := make(chan *timingwheel.Job, 1)
		asked = 0
		job = mustJob(t)(w.ScheduleFunc(schedulerFunc(func(prev time.Time) time.Time {
			asked++
			return prev.Add(msec)
		}), func() { (<-stopped).Stop() }))
		stopped <- job
		<-job.Done()
		require.Equal(t, 1, asked, "not again after Stop")

		w.Stop()
		_, err := w.ScheduleFunc(schedulerFunc(func(time.Time) time.Time { panic("must not be asked") }), log.note)
		require.Equal(t, timingwheel.ErrStopped, err)
	})
}

// A panic of the handler itself goes on, whether a job's panic called it or another
// task's.
func TestHandlerThatPanics(t *testing.T) {
	calls := 0
	w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.Inline()), timingwheel.WithPanicHandler(func(any, []byte) {
		calls++
		panic("the handler's own")
	}))
	defer w.Stop()
	mustJob(t)(w.ScheduleAtFixedRate(0, time.Hour, func() { panic("the run's") }))
	require.PanicsWithValue(t, "the handler's own", func() { w.Drive(0) })
	require.Equal(t, 1, calls)
}

// A Job that has ended does not keep its function, even while its user holds the Job.
func TestJobRetainsNothing(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	const jobs, size = 500, 64 << 10
	before := heapInUse()
	var ended []*timingwheel.Job
	for range jobs {
		big := make([]byte, size)
		job := mustJob(t)(w.ScheduleAtFixedRate(time.Hour, time.Hour, func() { big[0]++ }))
		job.Stop()
		ended = append(ended, job)
	}
	waitFor(t, func() bool { return heapInUse() < before+jobs*size/10 })
	runtime.KeepAlive(ended)
}

type schedulerFunc func(prev time.Time) time.Time

func (f schedulerFunc) Next(prev time.Time) time.Time { return f(prev) }

func TestScheduleFunc(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		var asked []time.Duration
		job := mustJob(t)(w.ScheduleFunc(schedulerFunc(func(prev time.Time) time.Time {
			asked = append(asked, prev.Sub(log.start))
			if len(asked) == 4 {
				return time.Time{}
			}
			return prev.Add(90 * time.Minute)
		}), log.note))
		<-job.Done()
		require.NoError(t, job.Err())
		require.Equal(t, []time.Duration{0, 90 * time.Minute, 180 * time.Minute, 270 * time.Minute}, asked)
		require.Equal(t, asked[1:], log.take())
		require.False(t, job.Stop())

		job = mustJob(t)(w.ScheduleFunc(schedulerFunc(func(time.Time) time.Time { return time.Time{} }), log.note))
		<-job.Done()
		require.NoError(t, job.Err())
		require.Zero(t, job.Runs())
	})
}

// Times of the wall clock must have no monotonic reading, or they would be compared by
// it. (In a bubble no time has one.)
func TestCalendarHasNoMonotonicTimes(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	job := mustJob(t)(w.ScheduleFunc(schedulerFunc(func(prev time.Time) time.Time {
		require.NotContains(t, prev.String(), "m=")
		return time.Now().Add(time.Hour)
	}), func() {}))
	next, ok := job.Next()
	require.True(t, ok)
	require.NotContains(t, next.String(), "m=")
}

func TestSchedulerThatDoesNotAdvance(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		_, err := w.ScheduleFunc(schedulerFunc(func(prev time.Time) time.Time { return prev }), log.note)
		require.ErrorContains(t, err, "does not advance")
		at := log.start.Add(second)
		for _, policy := range []timingwheel.MissedPolicy{timingwheel.MissedBurst, timingwheel.MissedSkip, timingwheel.MissedDelay} {
			job := mustJob(t)(w.ScheduleFunc(schedulerFunc(func(time.Time) time.Time { return at }), log.note, timingwheel.OnMissed(policy)))
			<-job.Done()
			require.ErrorContains(t, job.Err(), "does not advance")
			require.Len(t, log.take(), 1)
			at = at.Add(second)
		}
		require.Zero(t, w.Len())
	})
}

// Weeks of a per-minute job and a daily job: no run too many and none too few.
func TestCalendarOverWeeks(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		daily := schedulerFunc(func(prev time.Time) time.Time {
			return time.Date(prev.Year(), prev.Month(), prev.Day()+1, 3, 30, 0, 0, time.UTC)
		})
		job := mustJob(t)(w.ScheduleFunc(daily, log.note))
		often := mustJob(t)(w.ScheduleFunc(schedulerFunc(func(prev time.Time) time.Time {
			return prev.Truncate(time.Minute).Add(time.Minute)
		}), func() {}))
		days := unlessShort(28, 14)
		time.Sleep(time.Duration(days) * 24 * time.Hour)
		synctest.Wait()
		require.EqualValues(t, days*24*60, often.Runs())
		for i, at := range log.take() {
			require.Equal(t, time.Duration(i)*24*time.Hour+27*time.Hour+30*time.Minute, at) // a bubble begins at midnight
		}
		require.EqualValues(t, days-1, job.Runs())
	})
}

func TestBadJobsPanic(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	f := func() {}
	for message, call := range map[string]func(){
		"timingwheel: ScheduleAtFixedRate: nil function":                                                  func() { w.ScheduleAtFixedRate(0, 1, nil) },
		"timingwheel: ScheduleWithFixedDelay: nil function":                                               func() { w.ScheduleWithFixedDelay(0, 1, nil) },
		"timingwheel: ScheduleFunc: nil function":                                                         func() { w.ScheduleFunc(everySecond{}, nil) },
		"timingwheel: ScheduleFunc: nil Scheduler":                                                        func() { w.ScheduleFunc(nil, f) },
		"timingwheel: ScheduleAtFixedRate: non-positive period":                                           func() { w.ScheduleAtFixedRate(0, 0, f) },
		"timingwheel: ScheduleWithFixedDelay: non-positive delay":                                         func() { w.ScheduleWithFixedDelay(0, -1, f) },
		"timingwheel: ScheduleWithFixedDelay: OnMissed does not apply, since a fixed delay misses no run": func() { w.ScheduleWithFixedDelay(0, 1, f, timingwheel.OnMissed(timingwheel.MissedBurst)) },
		"timingwheel: OnMissed(3): no such policy":                                                        func() { timingwheel.OnMissed(3) },
		"timingwheel: Jitter: negative d: -1ns":                                                           func() { timingwheel.Jitter(-1, "x") },
		"timingwheel: OnMissed(-1): no such policy":                                                       func() { timingwheel.OnMissed(-1) },
		"timingwheel: Submit: nil function":                                                               func() { timingwheel.Submit[int](w, 0, nil) },
		"timingwheel: Keyed.Schedule: nil function":                                                       func() { timingwheel.NewKeyed[int](w).Schedule(1, 0, nil) },
		"timingwheel: WithPanicHandler(nil)":                                                              func() { timingwheel.New(timingwheel.WithPanicHandler(nil)) },
	} {
		require.PanicsWithValue(t, message, call)
	}
	require.Zero(t, w.Len())
}

func TestJobsOfExtremePeriods(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		for _, policy := range []timingwheel.MissedPolicy{timingwheel.MissedBurst, timingwheel.MissedSkip, timingwheel.MissedDelay} {
			job := mustJob(t)(w.ScheduleAtFixedRate(math.MinInt64, math.MaxInt64, log.note, timingwheel.OnMissed(policy)))
			time.Sleep(time.Hour)
			require.Len(t, log.take(), 1)
			require.True(t, job.Stop())
			job = mustJob(t)(w.ScheduleAtFixedRate(math.MaxInt64, 1, log.note, timingwheel.OnMissed(policy)))
			time.Sleep(time.Hour)
			require.Empty(t, log.take())
			require.True(t, job.Reset(math.MaxInt64))
			require.True(t, job.Stop())
		}
		job := mustJob(t)(w.ScheduleWithFixedDelay(0, math.MaxInt64, log.note))
		time.Sleep(time.Hour)
		require.Len(t, log.take(), 1)
		require.True(t, job.Stop())
	})
}

// A job that has ended lets go of its Scheduler, even if the program keeps the Job.
func TestJobLetsGoOfItsScheduler(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	type calendar struct {
		step time.Duration
		_    [1 << 10]byte // or the allocator puts it together with others
	}
	scheduler := func() (timingwheel.Scheduler, weak.Pointer[calendar]) {
		c := &calendar{step: time.Hour}
		return schedulerFunc(func(prev time.Time) time.Time { return prev.Add(c.step) }), weak.Make(c)
	}
	s, kept := scheduler()
	job := mustJob(t)(w.ScheduleFunc(s, noop))
	s = nil
	require.True(t, job.Stop())
	waitForGarbage(t, func() bool {
		return kept.Value() == nil
	})
	runtime.KeepAlive(job)
}
