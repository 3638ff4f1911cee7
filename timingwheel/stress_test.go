package timingwheel

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stress is a wheel under random calls from many goroutines, in real time. Its accounts say how
// every task ended.
type stress struct {
	t      *testing.T
	w      *TimingWheel
	inline bool
	end    atomic.Bool

	scheduled, fired, canceled, handedBack atomic.Int64

	mu    sync.Mutex
	tasks []*stressTask // some that others may cancel and reset
}

// stressTask is a task that is armed, and then ends exactly once. arms goes up with each
// scheduling, and down with each firing, cancel and handing back.
type stressTask struct {
	arms    atomic.Int64
	due     time.Duration // the earliest time at which it may fire, since the wheel's start; 0 if it may be reset
	mu      sync.Mutex    // held around Reset
	timer   *Timer
	timeout Timeout
	f       func()
}

func (s *stress) newTask() *stressTask {
	task := &stressTask{}
	task.f = func() { s.run(task) }
	return task
}

func (s *stress) delay() time.Duration {
	if rand.IntN(8) == 0 {
		return -1
	}
	return time.Duration(rand.Int64N(1 << (8 + rand.IntN(18)))) // up to 33 ms
}

func (s *stress) schedule() {
	task, d := s.newTask(), s.delay()
	task.arms.Add(1)
	if rand.IntN(2) == 0 {
		task.mu.Lock() // until the fields are there for the task itself
		task.timer = s.w.AfterFunc(d, task.f)
		accepted := task.timer.lazy.F != nil
		task.mu.Unlock()
		s.account(task, accepted)
	} else {
		task.due = s.w.engine().Clock().Now() + d
		timeout, err := s.w.Schedule(d, task.f)
		task.mu.Lock()
		task.timeout = timeout
		task.mu.Unlock()
		s.account(task, err == nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tasks) < 1000 {
		s.tasks = append(s.tasks, task)
	} else {
		s.tasks[rand.IntN(len(s.tasks))] = task
	}
}

func (s *stress) account(task *stressTask, accepted bool) {
	if accepted {
		s.scheduled.Add(1)
	} else {
		task.arms.Add(-1)
	}
}

func (s *stress) some() *stressTask {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tasks) == 0 {
		return nil
	}
	return s.tasks[rand.IntN(len(s.tasks))]
}

func (s *stress) cancel(task *stressTask) {
	task.mu.Lock()
	defer task.mu.Unlock()
	if task.timer != nil && task.timer.Stop() || task.timer == nil && task.timeout.Cancel() {
		s.ended(task, &s.canceled)
	}
}

// reset learns from the handle whether a timer that was not pending was armed anew, or
// was refused by a stopped wheel.
func (s *stress) reset(task *stressTask) {
	task.mu.Lock()
	defer task.mu.Unlock()
	if task.timer == nil {
		return
	}
	task.arms.Add(1)
	before := task.timer.entry
	pending := task.timer.Reset(s.delay())
	if pending {
		task.arms.Add(-1)
	} else {
		now := task.timer.entry
		s.account(task, now != before)
	}
}

// wait waits for one of the wheel's own tasks, or does not, and leaves none behind. None
// may keep it waiting, whenever the wheel is stopped.
func (s *stress) wait() {
	ctx, cancel := s.w.WithTimeout(context.Background(), s.delay())
	defer cancel()
	timer := s.w.NewTimer(s.delay())
	defer timer.Stop()
	ticker := s.w.NewTicker(1 + max(0, s.delay()))
	defer ticker.Stop()
	switch rand.IntN(20) {
	case 0:
		<-ctx.Done()
	case 1:
		<-timer.C
	case 2:
		select {
		case <-ticker.C:
		case <-ctx.Done(): // the wheel was stopped, and the ticker with it
		}
	}
}

func (s *stress) ended(task *stressTask, how *atomic.Int64) {
	if task.arms.Add(-1) < 0 {
		s.t.Error("a task ended twice")
	}
	how.Add(1)
}

func (s *stress) run(task *stressTask) {
	s.ended(task, &s.fired)
	if s.w.engine().Clock().Now() < task.due {
		s.t.Error("early")
	}
	switch rand.IntN(12) {
	case 0:
		s.schedule()
	case 1:
		if other := s.some(); other != nil {
			s.cancel(other)
		}
	case 2:
		s.reset(task)
	case 3:
		if !s.inline {
			time.Sleep(time.Duration(rand.IntN(2_000_000)))
		}
	case 4:
		runtime.Goexit()
	case 5:
		s.w.Len()
	}
}

func (s *stress) stop() {
	s.end.Store(true)
	for _, p := range s.w.Stop() {
		s.handedBack.Add(1)
		if p.Func == nil || p.Deadline.IsZero() {
			s.t.Error("handed back without function or deadline")
		}
	}
}

// stressExecutors run every task, some of them on the driver.
var stressExecutors = []struct {
	name     string
	inline   bool
	executor func() Executor
}{
	{"goroutines", false, Goroutines},
	{"inline", true, Inline},
	{"pool, block", false, func() Executor { return newPool(8, 10, fullWait) }},
	{"pool, caller runs", true, func() Executor { return newPool(2, 1, fullCallerRuns) }},
	{"pool, discard", true, func() Executor { return newPool(2, 10, fullDiscard(func(task func()) { task() })) }},
}

// TestStress runs many goroutines against wheels of all shapes, and stops each wheel at a
// random moment: from outside or from inside a task, and sometimes in the middle of a
// cascade of several slices. Then every single task must be accounted for, and no
// goroutine may be left.
func TestStress(t *testing.T) {
	rounds := unlessShort(24, 6)
	for round := range rounds {
		tick := []time.Duration{time.Microsecond, 50 * time.Microsecond, time.Millisecond}[round%3]
		size := []int{2, 4, 512}[round/3%3]
		shards := []int{1, 4}[round%2]
		run := stressExecutors[round%len(stressExecutors)]
		t.Run(fmt.Sprintf("tick=%v,size=%d,shards=%d,%s", tick, size, shards, run.name), func(t *testing.T) {
			s := &stress{t: t, inline: run.inline}
			goroutines := runtime.NumGoroutine()
			s.w = New(WithTick(tick), WithWheelSize(size), WithShards(shards), WithExecutor(run.executor()), WithMaxPending(math.MaxInt), WithProfileRate(round%3))
			s.storm(time.Duration(rand.Int64N(int64(200*time.Millisecond))), round%5 == 4)

			accounted := func() int64 { return s.fired.Load() + s.canceled.Load() + s.handedBack.Load() }
			// A task may be between its Schedule and the counting of that until it has ended.
			// The number of goroutines does not tell: one of an earlier test may have been
			// counted in goroutines and be gone by now.
			waitUntil(t, func() bool { return s.w.Stats().Running == 0 && accounted() >= s.scheduled.Load() })
			waitUntil(t, func() bool { return runtime.NumGoroutine() <= goroutines })
			require.Equal(t, s.scheduled.Load(), accounted())
			require.Zero(t, s.w.Len())
			requireAccounts(t, s.w.Stats())
			require.Zero(t, s.w.Stats().Running)
			s.w.verify(t)
			t.Logf("scheduled %d = fired %d + canceled %d + handed back %d",
				s.scheduled.Load(), s.fired.Load(), s.canceled.Load(), s.handedBack.Load())
		})
	}
}

// storm calls the wheel from many goroutines for a while and stops it.
func (s *stress) storm(d time.Duration, stopInside bool) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for !s.end.Load() {
			requireAccounts(s.t, s.w.Stats())
			time.Sleep(50 * time.Microsecond)
		}
	})
	for range 8 {
		wg.Go(func() {
			for !s.end.Load() {
				switch n := rand.IntN(10); {
				case n < 5:
					s.schedule()
				case n < 7:
					if task := s.some(); task != nil {
						s.cancel(task)
					}
				case n < 9:
					if task := s.some(); task != nil {
						s.reset(task)
					}
				default:
					s.wait()
				}
				if s.w.Len() > 50_000 {
					time.Sleep(time.Millisecond) // do not outrun the driver for ever
				}
			}
		})
	}
	// A burst that makes a cascade of many slices, about when the stop comes.
	burst := s.newTask()
	burst.arms.Add(20_000)
	for range 20_000 {
		_, err := s.w.Schedule(d-d/8+time.Duration(rand.Int64N(int64(d/4+1))), burst.f)
		s.account(burst, err == nil)
	}
	if stopInside {
		stopped := make(chan struct{})
		if _, err := s.w.Schedule(d, func() { defer close(stopped); s.fired.Add(1); s.stop() }); err == nil {
			s.scheduled.Add(1)
			<-stopped
		}
	} else {
		time.Sleep(d)
		s.stop()
	}
	wg.Wait()
}

// waitUntil waits until the condition holds, on a loaded machine too.
func waitUntil(t testing.TB, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("waited in vain\n%s", buf[:runtime.Stack(buf, true)])
		}
	}
}

// waitForGarbage is waitUntil that runs the collector before each poll. One run may not be enough,
// because an interrupted goroutine keeps what is left on its stack.
func waitForGarbage(t testing.TB, done func() bool) {
	t.Helper()
	waitUntil(t, func() bool {
		runtime.GC()
		return done()
	})
}
