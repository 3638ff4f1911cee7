package timingwheel_test

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// executors returns one of each kind, each of which runs every task. A closed Pool is
// always full.
func executors() map[string]timingwheel.Executor {
	discard := pool.Discard(func(task func()) { task() })
	return map[string]timingwheel.Executor{
		"goroutines":               timingwheel.Goroutines(),
		"inline":                   timingwheel.Inline(),
		"func":                     timingwheel.ExecutorFunc(func(task func()) { task() }),
		"func that refuses":        submitThatRefuses(0),
		"func that refuses some":   submitThatRefuses(2),
		"func that go":             timingwheel.ExecutorFunc(func(task func()) { go task() }),
		"pool, block":              pool.New(2, 1, pool.Wait),
		"pool, caller runs":        pool.New(1, 0, pool.CallerRuns),
		"pool, discard":            pool.New(1, 0, discard),
		"closed pool, caller runs": closed(pool.New(1, 0, pool.CallerRuns)),
		"closed pool, discard":     closed(pool.New(1, 0, discard)),
	}
}

func closed(p *pool.Pool) *pool.Pool {
	p.Close()
	return p
}

// A task that ends its goroutine takes no other along: not those of its batch,
// and not the driver.
func TestGoexitHarmsNothing(t *testing.T) {
	for name, executor := range executors() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := timingwheel.New(timingwheel.WithExecutor(executor), timingwheel.WithShards(1))
				var ran atomic.Int64
				// More than a slice, so that a cascade is under way as well.
				for i := range 1000 {
					w.AfterFunc(time.Millisecond+time.Duration(i%2)*time.Second, func() {
						ran.Add(1)
						if i%3 == 0 {
							runtime.Goexit()
						}
					})
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
				require.EqualValues(t, 500, ran.Load())
				time.Sleep(time.Minute)
				synctest.Wait()
				require.EqualValues(t, 1000, ran.Load())
				require.Empty(t, w.Stop())
			})
		})
	}
}

// Under manual drive a task that ends its goroutine ends that of the caller. The next
// call of Drive carries on where that one was.
func TestGoexitUnderManualDrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithExecutor(timingwheel.Inline()), timingwheel.WithShards(1), timingwheel.WithManualDrive())
		ran := 0
		for i := range 1000 {
			w.AfterFunc(0, func() {
				if ran++; i == 10 {
					runtime.Goexit()
				}
			})
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Drive(0)
			t.Error("Drive returned")
		}()
		<-ended
		require.Less(t, ran, 1000)
		w.Drive(0)
		require.Equal(t, 1000, ran)
		require.Empty(t, w.Stop())
	})
}

// Labels that a task sets must not show in the next task, and neither must the labels of the
// goroutine that made the wheel. The goroutine profile shows them.
func TestLabelsDoNotLeak(t *testing.T) {
	for name, executor := range executors() {
		if name == "func" {
			continue // a function that runs the task itself must clear the labels itself
		}
		t.Run(name, func(t *testing.T) {
			var w *timingwheel.TimingWheel
			pprof.Do(t.Context(), pprof.Labels("maker", name), func(context.Context) {
				w = timingwheel.New(timingwheel.WithExecutor(executor), timingwheel.WithShards(1))
			})
			defer w.Stop()
			var wg sync.WaitGroup
			profiles := make([]string, unlessShort(20, 5))
			for i := range profiles {
				// Many tasks that set labels and return, so that the task that looks gets
				// the goroutine of one of them.
				at := time.Now().Add(time.Duration(i) * time.Millisecond)
				for range 50 {
					w.ScheduleAt(at, func() {
						pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("task", name)))
					})
				}
				wg.Add(1)
				w.ScheduleAt(at, func() {
					defer wg.Done()
					var b strings.Builder
					pprof.Lookup("goroutine").WriteTo(&b, 1)
					profiles[i] = b.String()
				})
			}
			wg.Wait()
			for _, profile := range profiles {
				require.Contains(t, profile, "timingwheel")
				require.NotContains(t, profile, `"maker"`)
				// Look at its own goroutine only: another one may just be clearing its
				// labels.
				for stanza := range strings.SplitSeq(profile, "\n\n") {
					if strings.Contains(stanza, "writeGoroutine") {
						require.NotContains(t, stanza, `"task"`)
					}
				}
			}
		})
	}
}

// The labels of a goroutine that calls Execute must not show in the tasks.
func TestLabelsOfTheCallerDoNotLeak(t *testing.T) {
	for name, executor := range map[string]timingwheel.Executor{
		"goroutines": timingwheel.Goroutines(),
		"pool":       pool.New(1, 0, pool.Wait),
	} {
		t.Run(name, func(t *testing.T) {
			inside := make(chan string)
			pprof.Do(t.Context(), pprof.Labels("caller", name), func(context.Context) {
				require.Contains(t, ownStanza(t), `"caller"`)
				executor.Execute([]func(){func() { inside <- ownStanza(t) }})
			})
			require.NotContains(t, <-inside, `"caller"`)
		})
	}
}

// Neither must the labels of the goroutine that adds the task. It may start the goroutine that
// runs the task, or the driver.
func TestLabelsOfTheAdderDoNotLeak(t *testing.T) {
	for name, executor := range executors() {
		for trace, opts := range map[string][]timingwheel.Option{"": nil, ", trace": {timingwheel.WithTrace("sessions")}} {
			t.Run(name+trace, func(t *testing.T) {
				w := timingwheel.New(append(opts, timingwheel.WithExecutor(executor), timingwheel.WithShards(1))...)
				defer w.Stop()
				inside := make(chan string, 10)
				look := func() { inside <- ownStanza(t) }
				timer := w.AfterFunc(time.Hour, look)
				batch := func(d time.Duration) []timingwheel.Delayed {
					return []timingwheel.Delayed{{After: d, Func: look}, {After: d, Func: look}}
				}
				for _, d := range []time.Duration{0, time.Millisecond} {
					for _, add := range []func() (n int){ // each alone, on a goroutine that is new
						func() int { w.Schedule(d, look); return 1 },
						func() int { timer.Reset(d); return 1 },
						func() int { w.ScheduleBatch(nil, batch(d)); return 2 },
					} {
						n := 0
						pprof.Do(t.Context(), pprof.Labels("adder", name), func(context.Context) { n = add() })
						for range n {
							require.NotContains(t, <-inside, `"adder"`)
						}
					}
				}
			})
		}
	}
}

// A panic in a task crashes the program, as with time.AfterFunc, and the trace
// shows the task.
func TestPanicCrashes(t *testing.T) {
	if name := os.Getenv("TICKWHEEL_PANIC"); name != "" {
		w := timingwheel.New(timingwheel.WithExecutor(executors()[name]))
		w.AfterFunc(0, panickingTask)
		time.Sleep(time.Minute)
		os.Exit(0)
	}
	for name := range executors() {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestPanicCrashes$")
			cmd.Env = append(os.Environ(), "TICKWHEEL_PANIC="+name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, 2, exit.ExitCode())
			require.Contains(t, string(out), "panic: the task's own")
			require.Contains(t, string(out), "panickingTask")
		})
	}
}

func panickingTask() { panic("the task's own") }

// With one shard, tasks of one tick run inline in the order of their scheduling,
// also when there are more than a slice of them. One that was reset runs anywhere among them.
func TestOrderWithinATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithExecutor(timingwheel.Inline()), timingwheel.WithShards(1), timingwheel.WithWheelSize(4))
		defer w.Stop()
		const tasks = 2000
		var order []int
		timers := make([]*timingwheel.Timer, tasks)
		begin := time.Now()
		for i := range timers {
			timers[i] = w.AfterFunc(time.Until(begin.Add(time.Second)), func() { order = append(order, i) })
			if i%100 == 0 {
				time.Sleep(time.Millisecond) // added at different levels
			}
		}
		require.True(t, timers[0].Reset(time.Until(begin.Add(time.Second))))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, order, tasks)
		order = slices.DeleteFunc(order, func(i int) bool { return i == 0 })
		for i, got := range order {
			require.Equal(t, i+1, got)
		}
	})
}

// Goroutines runs tasks that do not block on few goroutines, and keeps none of them.
func TestGoroutinesAreFew(t *testing.T) {
	withoutCollector(t)
	before := runtime.NumGoroutine()
	e := timingwheel.Goroutines()
	var wg sync.WaitGroup
	var peak atomic.Int64
	const tasks = 100_000
	wg.Add(tasks)
	batch := make([]func(), 100)
	for i := range batch {
		batch[i] = func() {
			if n := int64(runtime.NumGoroutine()); n > peak.Load() {
				peak.Store(n)
			}
			wg.Done()
		}
	}
	for range tasks / len(batch) {
		e.Execute(batch)
	}
	wg.Wait()
	require.Less(t, peak.Load()-int64(before), int64(200))
	waitFor(t, func() bool { return runtime.NumGoroutine() <= before })
}

// Tasks that wait for each other must all get to run, each blocked on the rest.
func TestGoroutinesRunTasksThatWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		defer w.Stop()
		const tasks = 1000
		var all sync.WaitGroup
		all.Add(tasks)
		for range tasks {
			w.AfterFunc(time.Millisecond, func() {
				all.Done()
				all.Wait()
			})
		}
		start := time.Now()
		all.Wait()
		require.Equal(t, time.Millisecond, time.Since(start))
	})
}

// countingPool is a Pool with an Execute of its own.
type countingPool struct {
	*pool.Pool
	seen int
}

func (p *countingPool) Execute(tasks []func()) {
	p.seen += len(tasks)
	p.Pool.Execute(tasks)
}

// A type that embeds a Pool has the Pool's unexported methods, too. The wheel must call
// its Execute all the same.
func TestExecutorThatEmbedsAPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := &countingPool{Pool: pool.New(2, 1, pool.Wait)}
		w := timingwheel.New(timingwheel.WithExecutor(pool))
		var ran atomic.Int64
		for range 10 {
			w.Schedule(time.Millisecond, func() { ran.Add(1) })
		}
		require.NoError(t, w.Shutdown(t.Context()))
		pool.Close()
		require.EqualValues(t, 10, ran.Load())
		require.Equal(t, 10, pool.seen)
	})
}

// nothing is an executor without a state, so that its nil pointer is as good as another.
type nothing struct{}

func (*nothing) Execute(tasks []func()) {
	for _, task := range tasks {
		task()
	}
}

func TestNilPointerOfAUsersExecutor(t *testing.T) {
	w := timingwheel.New(timingwheel.WithExecutor((*nothing)(nil)))
	defer w.Stop()
	ran := make(chan bool)
	w.AfterFunc(0, func() { close(ran) })
	<-ran
}
