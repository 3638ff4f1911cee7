package timingwheel_test

import (
	"github.com/tickwheel/tickwheel/timingwheel/pool"

	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// peak keeps the highest value that it has seen.
type peak struct{ atomic.Int64 }

func (p *peak) see(n int64) {
	for old := p.Load(); n > old && !p.CompareAndSwap(old, n); old = p.Load() {
	}
}

// Several wheels fill one Pool with more than it takes. No more run at once than it has
// workers, no more wait than its queue has room for, and each task is run or discarded
// once. Close then finds nothing left.
func TestPoolStress(t *testing.T) {
	const wheels = 3
	tasks := unlessShort(3000, 1000)
	for _, size := range []struct{ workers, queue int }{{1, 0}, {1, 1}, {2, 0}, {3, 5}, {8, 100}, {4, math.MaxInt}} {
		for name, full := range map[string]func(seen func(task func())) pool.WhenFull{
			"caller runs": func(func(func())) pool.WhenFull { return pool.CallerRuns },
			"block":       func(func(func())) pool.WhenFull { return pool.Wait },
			"discard":     func(seen func(func())) pool.WhenFull { return pool.Discard(seen) },
		} {
			t.Run(fmt.Sprintf("workers=%d,queue=%d,%s", size.workers, size.queue, name), func(t *testing.T) {
				var discarded, done, running atomic.Int64
				var atOnce, accepted peak
				ends := make([]atomic.Int64, wheels*tasks)
				p := pool.New(size.workers, size.queue, full(func(func()) { discarded.Add(1); done.Add(1) }))
				work := func(n int) {
					atOnce.see(running.Add(1))
					st := p.Stats()
					accepted.see(st.Running + st.Queued)
					if n%16 == 0 {
						time.Sleep(20 * time.Microsecond)
					}
					ends[n].Add(1)
					running.Add(-1)
					done.Add(1)
					if n%64 == 1 {
						runtime.Goexit()
					}
				}
				ws := make([]*timingwheel.TimingWheel, wheels)
				for i := range ws {
					ws[i] = timingwheel.New(timingwheel.WithExecutor(p), timingwheel.WithShards(2), timingwheel.WithTick(50*time.Microsecond))
					for n := range tasks {
						ws[i].Schedule(time.Duration(n)*5*time.Microsecond, func() { work(i*tasks + n) })
					}
				}
				waitFor(t, func() bool { return done.Load() == int64(wheels*tasks) })
				var callerRuns, discards int64
				for _, w := range ws {
					require.NoError(t, w.Shutdown(t.Context()))
					st := w.Stats()
					require.Zero(t, st.Running)
					require.EqualValues(t, tasks, st.Expired)
					callerRuns += st.CallerRuns
					discards += st.Discarded
				}
				p.Close()

				ran := int64(0)
				for i := range ends {
					require.LessOrEqual(t, ends[i].Load(), int64(1), "a task ran twice")
					ran += ends[i].Load()
				}
				require.EqualValues(t, wheels*tasks, ran+discarded.Load())
				require.Equal(t, discarded.Load(), discards)
				onDrivers := int64(0)
				if name == "caller runs" {
					onDrivers = wheels
				} else {
					require.Zero(t, callerRuns)
				}
				require.LessOrEqual(t, atOnce.Load(), int64(size.workers)+onDrivers)
				if size.queue < math.MaxInt {
					require.LessOrEqual(t, accepted.Load(), int64(size.workers+size.queue))
				}
				t.Logf("%d ran, %d on drivers, %d discarded, %d at once", ran, callerRuns, discards, atOnce.Load())
			})
		}
	}
}

// The same without anybody who comes later: what was pushed last has to be run, too.
func TestPoolRunsTheLastTask(t *testing.T) {
	rounds := unlessShort(20_000, 2000)
	atProcessors(t, func(t *testing.T) {
		p := pool.New(1, 1, pool.Wait)
		for range rounds {
			var both sync.WaitGroup
			both.Add(2)
			go p.Execute([]func(){both.Done})
			p.Execute([]func(){both.Done})
			done := make(chan struct{})
			go func() { both.Wait(); close(done) }()
			select {
			case <-done:
			case <-time.After(30 * time.Second):
				require.Fail(t, "a task is left in the queue")
			}
		}
		p.Close()
	})
}

// With one worker, a wheel of one shard and FullWait, tasks run in the order of their
// deadlines and, within a tick, of their scheduling.
func TestPoolOfOneKeepsOrder(t *testing.T) {
	for _, queue := range []int{0, 1, 100, math.MaxInt} {
		p := pool.New(1, queue, pool.Wait)
		w := timingwheel.New(timingwheel.WithExecutor(p), timingwheel.WithShards(1), timingwheel.WithTick(time.Hour))
		const tasks = 3 * engine.SliceLen
		var order []int
		for i := range tasks {
			w.Schedule(-1, func() { order = append(order, i) })
		}
		require.NoError(t, w.Shutdown(t.Context()))
		p.Close()
		require.Len(t, order, tasks)
		for i := range order {
			require.Equal(t, i, order[i])
		}
	}
}

// As many as there are workers run at the same time, also when each waits for all others.
func TestPoolUsesAllWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 100
		for _, queue := range []int{0, 7} {
			p := pool.New(workers, queue, pool.Wait)
			w := timingwheel.New(timingwheel.WithExecutor(p))
			for range 10 {
				var all sync.WaitGroup
				all.Add(workers)
				for i := range workers {
					w.Schedule(time.Duration(i/50)*time.Millisecond, func() {
						all.Done()
						all.Wait()
					})
				}
				all.Wait()
			}
			require.NoError(t, w.Shutdown(t.Context()))
			p.Close()
		}
	})
}

// busy fills the Pool with tasks that end when release is called.
func busyPool(p *pool.Pool, tasks int) (release func()) {
	c := make(chan struct{})
	for range tasks {
		p.Execute([]func(){func() { <-c }})
	}
	return func() { close(c) }
}

// runOrder is the order in which tasks ran, on workers of any number.
type runOrder struct {
	mu  sync.Mutex
	ran []int
}

func (o *runOrder) add(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ran = append(o.ran, n)
}

func (o *runOrder) all() []int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.ran)
}

// A task that finds the Pool full stays pending. It can be canceled and reset, and Stop hands it
// back. No other task is late meanwhile.
func TestPoolWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(2, 3, pool.Wait)
		release := busyPool(p, 5)
		w := timingwheel.New(timingwheel.WithExecutor(p), timingwheel.WithShards(1))
		var order runOrder
		timeouts := make([]timingwheel.Timeout, 10)
		for i := range timeouts {
			timeouts[i], _ = w.Schedule(time.Millisecond, func() { order.add(i) })
		}
		time.Sleep(time.Second)
		channel := w.NewTimer(time.Millisecond)
		<-channel.C
		keyed := timingwheel.NewKeyed[string](w)
		_, err := keyed.Schedule("k", 0, func() { order.add(100) })
		require.NoError(t, err)
		future, err := timingwheel.Submit(w, 0, func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
		job := mustJob(t)(w.ScheduleAtFixedRate(0, time.Hour, func() { order.add(200) }))
		gone := mustJob(t)(w.ScheduleAtFixedRate(0, time.Hour, func() { t.Error("ran") }))
		timer := w.AfterFunc(0, func() { order.add(300) })
		time.Sleep(time.Second)

		require.Equal(t, 15, w.Len())
		verify(t, w)
		st := w.Stats()
		require.EqualValues(t, 15, st.Waiting)
		require.Zero(t, st.HeldUp)
		require.Zero(t, st.Running)
		require.EqualValues(t, 15, w.Snapshot(0).Waiting)
		require.Equal(t, pool.Stats{Workers: 2, Queue: 3, Running: 2, Queued: 3, Waiting: 15}, p.Stats())
		verify(t, w)

		require.True(t, timeouts[3].Cancel())
		require.True(t, timer.Reset(time.Minute))
		require.True(t, gone.Stop())
		replaced, err := keyed.Schedule("k", 0, func() { order.add(101) })
		require.NoError(t, err)
		require.True(t, replaced)
		time.Sleep(time.Second)
		verify(t, w)
		require.EqualValues(t, 12, w.Stats().Waiting)

		release()
		synctest.Wait()
		require.Len(t, order.all(), 11)
		require.ElementsMatch(t, []int{0, 1, 2, 4, 5, 6, 7, 8, 9, 101, 200}, order.all())
		_, err = future.Wait(t.Context())
		require.NoError(t, err)
		require.True(t, job.Stop())
		require.Equal(t, pool.Stats{Workers: 2, Queue: 3}, p.Stats())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 300, order.all()[11])
		require.NoError(t, w.Shutdown(t.Context()))
		p.Close()
		require.True(t, p.Stats().Closed)
	})
}

// Stop hands back what waits for room, and Shutdown waits for it.
func TestPoolWaitsAndTheWheelEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(1, 0, pool.Wait)
		release := busyPool(p, 1)
		stopped, shut := timingwheel.New(timingwheel.WithExecutor(p)), timingwheel.New(timingwheel.WithExecutor(p))
		ran := 0
		for range 3 {
			stopped.Schedule(time.Millisecond, func() { t.Error("ran") })
			shut.Schedule(time.Millisecond, func() { ran++ })
		}
		job := mustJob(t)(shut.ScheduleAtFixedRate(0, time.Hour, func() { t.Error("ran") }))
		time.Sleep(time.Second)
		require.Len(t, stopped.Stop(), 3)
		require.EqualValues(t, 4, p.Stats().Waiting)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, shut.Shutdown(ctx), context.DeadlineExceeded)
		<-job.Done()
		require.EqualValues(t, 3, p.Stats().Waiting)
		time.AfterFunc(time.Second, release)
		require.NoError(t, shut.Shutdown(t.Context()))
		require.Equal(t, 3, ran)
		require.NoError(t, p.Shutdown(t.Context()))
		require.Zero(t, p.Stats().Waiting)
	})
}

// Wheels that share a Pool take turns, a task each, however many wait on one of them.
func TestPoolWaitsFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(1, 0, pool.Wait)
		release := busyPool(p, 1)
		var order []int
		var wheels []*timingwheel.TimingWheel
		for i := range 3 {
			w := timingwheel.New(timingwheel.WithExecutor(p), timingwheel.WithShards(4))
			wheels = append(wheels, w)
			for range []int{1000, 3, 3}[i] {
				w.Schedule(time.Duration(1+i)*time.Millisecond, func() { order = append(order, i) })
			}
		}
		time.Sleep(time.Second)
		release()
		for _, w := range wheels {
			require.NoError(t, w.Shutdown(t.Context()))
		}
		require.Len(t, order, 1006)
		require.Equal(t, []int{0, 1, 2, 0, 1, 2, 0, 1, 2, 0}, order[:10])
		p.Close()
	})
}

// Thousands of wheels share a small Pool, whose bound holds all the time. Tasks cancel and
// reset what waits, and every task runs once or was canceled.
func TestPoolOfManyWheels(t *testing.T) {
	const tasks = 10
	wheels := unlessShort(2000, 300)
	p := pool.New(2, 1, pool.Wait)
	var ran, canceled, running atomic.Int64
	var atOnce peak
	all := make([]*timingwheel.TimingWheel, wheels)
	for i := range all {
		all[i] = timingwheel.New(timingwheel.WithExecutor(p), timingwheel.WithShards(1+i%2), timingwheel.WithWheelSize(2))
		last, _ := all[i].Schedule(2*time.Millisecond, func() { ran.Add(1) })
		for n := range tasks - 1 {
			all[i].Schedule(time.Duration(n%3)*time.Millisecond, func() {
				atOnce.see(running.Add(1))
				defer running.Add(-1)
				ran.Add(1)
				if n%3 == 0 && last.Cancel() {
					canceled.Add(1)
				}
				if n == 4 {
					runtime.Goexit()
				}
			})
		}
	}
	for _, w := range all {
		require.NoError(t, w.Shutdown(t.Context()))
		requireAccounts(t, w.Stats())
	}
	require.EqualValues(t, wheels*tasks, ran.Load()+canceled.Load())
	require.LessOrEqual(t, atOnce.Load(), int64(2))
	require.Zero(t, p.Stats().Waiting)
	require.NoError(t, p.Shutdown(t.Context()))
}

// README's pool, with tasks that wait for the wheel that they are on: the driver never waits
// for them, so they do not wait for ever.
func TestPoolTasksWaitForTheirWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(2, 1, pool.Wait)
		w := timingwheel.New(timingwheel.WithExecutor(p))
		var ran atomic.Int64
		for range 300 {
			w.Schedule(time.Millisecond, func() { w.Sleep(time.Millisecond); ran.Add(1) })
			w.Schedule(time.Millisecond, func() {
				ctx, cancel := w.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				<-ctx.Done()
				ran.Add(1)
			})
		}
		require.NoError(t, w.Shutdown(t.Context()))
		require.EqualValues(t, 600, ran.Load())
		p.Close()
	})
}

// Under FullCallerRuns a full Pool is back-pressure on the driver, and counted.
func TestPoolCallerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(2, 1, pool.CallerRuns)
		w := timingwheel.New(timingwheel.WithExecutor(p), timingwheel.WithShards(1))
		start := time.Now()
		for range 8 {
			w.Schedule(time.Millisecond, func() { time.Sleep(time.Second) })
		}
		require.NoError(t, w.Shutdown(t.Context()))
		// Three at a time: two workers and the driver. Three tasks are accepted, one is run by
		// the driver while the third waits; then the rest come. A second more where the driver
		// looks before the workers, which have ended at the same instant, have said so.
		require.Contains(t, []time.Duration{3*time.Second + time.Millisecond, 4*time.Second + time.Millisecond}, time.Since(start))
		st := w.Stats()
		require.EqualValues(t, 8, st.Expired)
		require.Positive(t, st.CallerRuns)
		require.Zero(t, st.Discarded)
		require.Zero(t, st.Running)
		p.Close()
	})
}

// A task that the driver runs is counted, also if it ends the driver's goroutine.
func TestPoolCountsWhatEndsTheDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(1, 0, pool.CallerRuns)
		release := busyPool(p, 1)
		w := timingwheel.New(timingwheel.WithExecutor(p), timingwheel.WithShards(1))
		for range 3 {
			w.Schedule(time.Millisecond, runtime.Goexit)
		}
		time.Sleep(time.Second)
		require.EqualValues(t, 3, w.Stats().CallerRuns)
		release()
		require.NoError(t, w.Shutdown(t.Context()))
		p.Close()
	})
}

// A discarded task is passed on once. A job goes on to its next run, a Future ends, and a key is
// gone. A task that was canceled at the last moment is not passed on.
func TestPoolDiscards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var passed []func()
		p := pool.New(1, 0, pool.Discard(func(task func()) { passed = append(passed, task) }))
		w := timingwheel.New(timingwheel.WithExecutor(p), timingwheel.WithShards(1))
		release := busyPool(p, 1)
		var ran []string
		note := func(name string) func() { return func() { ran = append(ran, name) } }

		w.AfterFunc(time.Second, note("timer"))
		w.Schedule(time.Second, note("timeout"))
		keyed := timingwheel.NewKeyed[string](w)
		keyed.Schedule("k", time.Second, note("key"))
		future, err := timingwheel.Submit(w, time.Second, func(context.Context) (int, error) { note("future")(); return 1, nil })
		require.NoError(t, err)
		rate := mustJob(t)(w.ScheduleAtFixedRate(time.Second, time.Second, note("rate")))
		calendar := mustJob(t)(w.ScheduleFunc(everySecond{}, note("calendar")))
		time.Sleep(time.Second)
		synctest.Wait()

		require.Len(t, passed, 6)
		for _, f := range passed {
			f()
		}
		require.ElementsMatch(t, []string{"timer", "timeout", "key", "rate", "calendar"}, ran, "the future's does nothing")
		require.Zero(t, keyed.Len())
		_, err = future.Wait(t.Context())
		require.ErrorIs(t, err, timingwheel.ErrDiscarded)
		require.False(t, future.Cancel())
		for _, job := range []*timingwheel.Job{rate, calendar} {
			require.Zero(t, job.Runs())
			next, ok := job.Next()
			require.True(t, ok)
			require.Equal(t, time.Second, time.Until(next))
		}
		st := w.Stats()
		require.EqualValues(t, 6, st.Discarded)
		require.EqualValues(t, 6, st.Expired)
		require.Zero(t, st.Running)

		release()
		require.True(t, calendar.Stop())
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 1, rate.Runs())
		require.NoError(t, w.Shutdown(t.Context()))
		<-rate.Done()
		p.Close()
	})
}

// Schedule of a key, and Stop of a job, win over discarding up to its instant.
func TestPoolDiscardsNothingThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var after []func() // called by the first that is discarded
		passed := 0
		p := closedRealPool(pool.Discard(func(func()) {
			passed++
			for _, f := range after {
				f()
			}
			after = nil
		}))
		w := manual(timingwheel.WithExecutor(p))
		keyed := timingwheel.NewKeyed[int](w)
		w.Schedule(time.Second, func() {})
		keyed.Schedule(1, time.Second, func() { t.Error("ran") })
		keyed.Schedule(2, time.Second, func() { t.Error("ran") })
		job := mustJob(t)(w.ScheduleAtFixedRate(time.Second, time.Second, func() { t.Error("ran") }))
		future, err := timingwheel.Submit(w, time.Second, func(context.Context) (int, error) { t.Error("ran"); return 0, nil })
		require.NoError(t, err)
		after = []func(){
			func() { require.True(t, keyed.Cancel(1)) },
			func() { require.True(t, keyed.Reset(2, time.Hour)) },
			func() { require.True(t, job.Stop()) },
			func() { require.True(t, future.Cancel()) },
		}
		time.Sleep(time.Second)
		require.Equal(t, 5, w.Drive(0))
		require.Equal(t, 1, passed)
		_, err = future.Wait(t.Context())
		require.ErrorIs(t, err, timingwheel.ErrCanceled)
		<-job.Done()
		require.ErrorIs(t, job.Err(), timingwheel.ErrCanceled)
		require.Equal(t, 1, keyed.Len())
		require.Zero(t, w.Stats().Running)
		require.Len(t, w.Stop(), 1)
	})
}

// Close waits for the tasks that the Pool has accepted. Any number of goroutines may call it.
func TestPoolClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(2, 8, pool.Wait)
		var ran atomic.Int64
		for range 10 {
			p.Execute([]func(){func() { time.Sleep(time.Second); ran.Add(1) }})
		}
		start := time.Now()
		var closes sync.WaitGroup
		for range 3 {
			closes.Go(func() {
				p.Close()
				require.EqualValues(t, 10, ran.Load())
			})
		}
		closes.Wait()
		require.Equal(t, 5*time.Second, time.Since(start))
		p.Close()
		pool.New(1, 0, pool.Wait).Close()
	})
}

// Execute, which waits for room, goes on when there is some, though no worker has become
// free: another task that waited has it by then.
func TestPoolExecuteGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(1, 1, pool.Wait)
		first, second := busyPool(p, 1), busyPool(p, 1)
		var accepted atomic.Bool
		go func() {
			p.Execute([]func(){func() {}})
			accepted.Store(true)
		}()
		synctest.Wait()
		require.False(t, accepted.Load())
		first()
		synctest.Wait()
		require.True(t, accepted.Load())
		second()
		p.Close()
	})
}

// Close ends the wait of Execute at once, though no task of the Pool ends: it runs the
// task itself.
func TestPoolCloseEndsTheWaitOfExecute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(1, 0, pool.Wait)
		release := busyPool(p, 1)
		var ran atomic.Bool
		go p.Execute([]func(){func() { ran.Store(true) }})
		synctest.Wait()
		require.False(t, ran.Load())
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			p.Close()
		}()
		synctest.Wait()
		require.True(t, ran.Load())
		release()
		<-closed
	})
}

// A closed Pool lets nothing in. Tasks that come due stay pending, and Stop hands them back.
func TestPoolCloseWhileTasksWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(1, 0, pool.Wait)
		release := busyPool(p, 1)
		w := timingwheel.New(timingwheel.WithExecutor(p))
		for range 10 {
			w.Schedule(time.Millisecond, func() { t.Error("ran") })
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.Shutdown(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "pool: Pool.Shutdown: ")
		release()
		require.NoError(t, p.Shutdown(t.Context()))
		w.AfterFunc(0, func() { t.Error("ran") })
		time.Sleep(time.Second)
		verify(t, w)
		require.Len(t, w.Stop(), 11)
		require.Zero(t, p.Stats().Waiting)
	})
}

// A Pool that had tasks keeps nothing of them, nor of the wheel that they were of.
func TestExecutorsKeepNothing(t *testing.T) {
	for name, executor := range map[string]timingwheel.Executor{
		"goroutines":  timingwheel.Goroutines(),
		"inline":      timingwheel.Inline(),
		"block":       pool.New(2, 1, pool.Wait),
		"caller runs": pool.New(1, 0, pool.CallerRuns),
		"discard":     pool.New(1, 0, pool.Discard(func(func()) {})),
	} {
		t.Run(name, func(t *testing.T) {
			wheel, closures := useAndForget(executor)
			waitForGarbage(t, func() bool {
				for _, c := range closures {
					if c.Value() != nil {
						return false
					}
				}
				return wheel.Value() == nil
			})
			runtime.KeepAlive(executor)
		})
	}
}

// useAndForget makes a wheel that runs tasks on the executor. It returns weak pointers to the wheel
// and to the data of the tasks.
func useAndForget(executor timingwheel.Executor) (weak.Pointer[timingwheel.TimingWheel], []weak.Pointer[[1024]byte]) {
	w := timingwheel.New(timingwheel.WithExecutor(executor), timingwheel.WithTick(50*time.Microsecond))
	var closures []weak.Pointer[[1024]byte]
	for i := range 500 {
		held := new([1024]byte)
		closures = append(closures, weak.Make(held))
		w.Schedule(time.Duration(i)*10*time.Microsecond, func() { held[0]++ })
	}
	return weak.Make(w), closures
}

// A wheel that goes on keeps nothing of the tasks that have run, either.
func TestWheelKeepsNothingThatRan(t *testing.T) {
	for name, executor := range map[string]timingwheel.Executor{
		"goroutines":  timingwheel.Goroutines(),
		"inline":      timingwheel.Inline(),
		"own":         timingwheel.ExecutorFunc(func(task func()) { task() }),
		"block":       pool.New(2, 500, pool.Wait),
		"caller runs": pool.New(1, 0, pool.CallerRuns),
		"discard":     pool.New(1, 500, pool.Discard(func(func()) {})),
	} {
		t.Run(name, func(t *testing.T) {
			w := timingwheel.New(timingwheel.WithExecutor(executor), timingwheel.WithTick(50*time.Microsecond), timingwheel.WithShards(1))
			defer w.Stop()
			var closures []weak.Pointer[[1024]byte]
			for range 500 { // in one go
				held := new([1024]byte)
				closures = append(closures, weak.Make(held))
				w.Schedule(time.Millisecond, func() { held[0]++ })
			}
			waitForGarbage(t, func() bool {
				for _, c := range closures {
					if c.Value() != nil {
						return false
					}
				}
				return true
			})
			require.EqualValues(t, 500, w.Stats().Expired)
		})
	}
}

// A huge Pool acts like no limit. A size that makes no sense panics.
func TestPoolSizes(t *testing.T) {
	p := pool.New(math.MaxInt, math.MaxInt, pool.Wait)
	var all sync.WaitGroup
	all.Add(1000)
	for range 1000 {
		p.Execute([]func(){func() { all.Done(); all.Wait() }})
	}
	p.Close()
	require.Equal(t, pool.Stats{Workers: math.MaxInt, Queue: math.MaxInt, Closed: true}, p.Stats())
	for want, f := range map[string]func(){
		"pool: New: 0 workers, must be at least 1":                     func() { pool.New(0, 1, pool.Wait) },
		"pool: New: -1 workers, must be at least 1":                    func() { pool.New(-1, 1, pool.Wait) },
		"pool: New: negative queue -1":                                 func() { pool.New(1, -1, pool.Wait) },
		"pool: New: WhenFull is zero: use Wait, CallerRuns or Discard": func() { pool.New(1, 1, pool.WhenFull{}) },
		"pool: Discard(nil)":                                           func() { pool.Discard(nil) },
	} {
		require.PanicsWithValue(t, want, f)
	}
}

// A job that only looks at the calendar takes no room in the Pool.
func TestPoolKeepsNoRoomForALookAtTheCalendar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(1, 1, pool.Wait)
		w := timingwheel.New(timingwheel.WithExecutor(p))
		hourly := schedulerFunc(func(prev time.Time) time.Time { return prev.Add(time.Hour) })
		ran := false
		job := mustJob(t)(w.ScheduleFunc(hourly, func() { ran = true }))
		time.Sleep(90 * time.Minute)
		synctest.Wait()
		require.Zero(t, p.Stats().Running+p.Stats().Queued)
		require.True(t, ran)
		require.True(t, job.Stop())
		w.Stop()
		p.Close()
	})
}

// A task that waits for room would run between two calls of Drive or Advance, whatever their clock
// says.
func TestPoolThatWaitsIsNotDrivenByHand(t *testing.T) {
	for want, byHand := range map[string]timingwheel.Option{
		"timingwheel: New: WithManualDrive excludes a Pool with pool.Wait: use pool.CallerRuns or pool.Discard": timingwheel.WithManualDrive(),
		"timingwheel: New: WithManualClock excludes a Pool with pool.Wait: use pool.CallerRuns or pool.Discard": timingwheel.WithManualClock(time.Now()),
	} {
		require.PanicsWithValue(t, want, func() { timingwheel.New(byHand, timingwheel.WithExecutor(pool.New(1, 0, pool.Wait))) })
		timingwheel.New(byHand, timingwheel.WithExecutor(pool.New(1, 0, pool.CallerRuns))).Stop()
	}
}

// closedRealPool returns a Pool that is full for ever.
func closedRealPool(full pool.WhenFull) *pool.Pool {
	p := pool.New(1, 0, full)
	p.Close()
	return p
}

// The wheel at the front of the line has nothing any more that waits: the next one gets the
// room, since no worker comes later.
func TestPoolServesWhoIsBehindNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New(1, 0, pool.Wait)
		release := busyPool(p, 1)
		front, behind := timingwheel.New(timingwheel.WithExecutor(p)), timingwheel.New(timingwheel.WithExecutor(p))
		canceled, _ := front.Schedule(time.Millisecond, func() { t.Error("ran") })
		time.Sleep(time.Second)
		ran := 0
		behind.Schedule(0, func() { ran++ })
		synctest.Wait()
		require.True(t, canceled.Cancel())
		require.EqualValues(t, 1, p.Stats().Waiting)
		release()
		synctest.Wait()
		require.Equal(t, 1, ran)
		require.Zero(t, p.Stats().Waiting)
		require.NoError(t, front.Shutdown(t.Context()))
		require.NoError(t, behind.Shutdown(t.Context()))
		p.Close()
	})
}
