package timingwheel_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// big is what a function refers to. It is no tiny object, which others would keep alive.
type big [64]*int

// A task that has run is garbage while the wheel lives on, however many tasks come due
// together, and however long an earlier task runs.
func TestWheelKeepsNothingOfWhatHasRun(t *testing.T) {
	for _, n := range []int{1, 2, 8, 9, 300} {
		for _, lazy := range []bool{false, true} {
			w := timingwheel.New(timingwheel.WithShards(1))
			release := make(chan struct{})
			w.Schedule(0, func() { <-release })
			waitFor(t, func() bool { return w.Len() == 0 })
			objects, timers := make([]weak.Pointer[big], n), make([]weak.Pointer[timingwheel.Timer], n)
			for i := range n {
				object := new(big)
				timer := w.AfterFunc(time.Hour, func() { object[0] = nil })
				if lazy {
					timer.Reset(time.Hour)
					timer.Reset(2 * time.Hour)
				}
				timer.Reset(30 * time.Millisecond)
				objects[i], timers[i] = weak.Make(object), weak.Make(timer)
			}
			waitForGarbage(t, func() bool {
				for i := range n {
					if objects[i].Value() != nil || timers[i].Value() != nil {
						return false
					}
				}
				return true
			})
			// One whose function has returned is counted as running for a moment more.
			waitFor(t, func() bool { return w.Stats().Running == 1 })
			close(release)
			require.Empty(t, w.Stop())
		}
	}
}

// A Timer that was pushed back without the lock and then stopped is garbage, too.
func TestWheelKeepsNothingOfWhatWasStopped(t *testing.T) {
	w := timingwheel.New(timingwheel.WithShards(1))
	defer w.Stop()
	timer := w.AfterFunc(time.Hour, noop)
	for range 3 {
		require.True(t, timer.Reset(2*time.Hour))
	}
	require.True(t, timer.Stop())
	of := weak.Make(timer)
	timer = nil
	waitForGarbage(t, func() bool { return of.Value() == nil })
}

// A task that was stopped among many pending ones is garbage, while package time keeps
// it. This holds for functions and for the parents of contexts, with a profile and
// without one. A Timeout keeps nothing, even if the program keeps the Timeout.
func TestWheelKeepsNothingOfWhatWasStoppedAmongOthers(t *testing.T) {
	const n = 2000
	for _, rate := range []int{0, 1, 8} {
		w := timingwheel.New(timingwheel.WithProfileRate(rate))
		var timeouts []timingwheel.Timeout
		var stops []func()
		var objects []weak.Pointer[big]
		for i := range n {
			object := new(big)
			objects = append(objects, weak.Make(object))
			f := func() { object[0] = nil }
			switch i % 3 {
			case 0:
				timeout, err := w.Schedule(time.Hour, f)
				require.NoError(t, err)
				timeouts = append(timeouts, timeout)
			case 1:
				timer := w.AfterFunc(time.Hour, f)
				stops = append(stops, func() { timer.Stop() })
			case 2:
				_, cancel := w.WithTimeout(context.WithValue(t.Context(), &objects, object), time.Hour)
				stops = append(stops, cancel)
			}
			for range 5 {
				w.AfterFunc(time.Hour+time.Duration(i)*time.Second, noop)
			}
		}
		for _, timeout := range timeouts {
			require.True(t, timeout.Cancel())
		}
		for _, stop := range stops { // in one pass, so that nothing new takes their places
			stop()
		}
		stops = nil
		waitForGarbage(t, func() bool {
			for _, o := range objects {
				if o.Value() != nil {
					return false
				}
			}
			return true
		})
		require.Equal(t, 5*n, w.Len())
		require.Len(t, w.Stop(), 5*n)
		runtime.KeepAlive(timeouts)
	}
}

// A stopped AfterFunc among others that come before it and after it does not keep what
// its function refers to, once the program has dropped the Timer (golang/go#75935:
// package time keeps it until the deadline). The same holds for one that was reset, of a
// group or under a key, and in a future or job.
func TestStoppedAfterFuncKeepsNothing(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	group, keyed := timingwheel.NewGroup(w), timingwheel.NewKeyed[int](w)
	starts := []func(i int, f func()) (stop func() bool){
		func(_ int, f func()) func() bool { return w.AfterFunc(time.Hour, f).Stop },
		func(_ int, f func()) func() bool {
			timer := w.AfterFunc(time.Hour, f)
			for range 3 {
				timer.Reset(2 * time.Hour)
			}
			return timer.Stop
		},
		func(_ int, f func()) func() bool {
			timer := w.AfterFunc(time.Hour, f)
			timer.Reset(time.Minute)
			return timer.Stop
		},
		func(_ int, f func()) func() bool {
			timer := w.AfterFunc(time.Hour, f)
			timer.Stop()
			timer.Reset(time.Hour)
			return timer.Stop
		},
		func(_ int, f func()) func() bool { return group.AfterFunc(time.Hour, f).Stop },
		func(i int, f func()) func() bool {
			keyed.Schedule(i, time.Hour, f)
			return func() bool { return keyed.Cancel(i) }
		},
		func(i int, f func()) func() bool {
			keyed.Schedule(i, time.Hour, f)
			return func() bool { replaced, _ := keyed.Schedule(i, time.Hour, noop); return replaced }
		},
		func(_ int, f func()) func() bool {
			future, err := timingwheel.Submit(w, time.Hour, func(context.Context) (int, error) { f(); return 0, nil })
			require.NoError(t, err)
			return future.Cancel
		},
		func(_ int, f func()) func() bool {
			job, err := w.ScheduleAtFixedRate(time.Hour, time.Hour, f)
			require.NoError(t, err)
			return job.Stop
		},
		func(_ int, f func()) func() bool {
			ctx, cancel := w.WithTimeout(context.Background(), time.Hour)
			stop := context.AfterFunc(ctx, f)
			return func() bool { defer cancel(); return stop() }
		},
	}
	var objects []weak.Pointer[big]
	var stops []func() bool
	for i := range 100 * len(starts) {
		w.AfterFunc(time.Hour-time.Minute, noop)
		object := new(big)
		objects = append(objects, weak.Make(object))
		stops = append(stops, starts[i%len(starts)](i, func() { object[0] = nil }))
		w.AfterFunc(time.Hour+time.Minute, noop)
	}
	for i, stop := range stops { // in one pass, so that nothing new takes their places
		require.True(t, stop(), i%len(starts))
	}
	stops = nil
	waitForGarbage(t, func() bool {
		return !slices.ContainsFunc(objects, func(o weak.Pointer[big]) bool { return o.Value() != nil })
	})
	runtime.KeepAlive(group)
	runtime.KeepAlive(keyed)
}

// A canceled task is garbage at once, in any order, and also if nothing else happens on
// the wheel. Len is exact.
func TestWheelKeepsNothingOfWhatWasCanceled(t *testing.T) {
	const n, kept = 200, 10
	w := timingwheel.New(timingwheel.WithShards(1))
	defer w.Stop()
	objects, all := make([]weak.Pointer[big], n), make([]timingwheel.Timeout, n)
	for i := range n {
		object := new(big)
		objects[i] = weak.Make(object)
		all[i], _ = w.Schedule(time.Hour, func() { object[0] = nil })
	}
	for k, i := range rand.Perm(n)[:n-kept] {
		require.True(t, all[i].Cancel())
		require.False(t, all[i].Cancel())
		require.Equal(t, n-1-k, w.Len())
	}
	alive := func() (n int) {
		for i := range objects {
			if objects[i].Value() != nil {
				n++
			}
		}
		return n
	}
	waitForGarbage(t, func() bool { return alive() <= kept })
	require.Equal(t, kept, alive())
	require.EqualValues(t, kept, w.Stats().Pending)
}

// A task that blocks does not keep its wheel.
func TestBlockedTaskKeepsNothing(t *testing.T) {
	for _, n := range []int{2, 1} {
		release := make(chan struct{})
		var began atomic.Int64
		w := timingwheel.New(timingwheel.WithShards(1), timingwheel.WithExecutor(timingwheel.Goroutines()))
		for range n {
			w.Schedule(20*time.Millisecond, func() {
				began.Add(1)
				<-release
			})
		}
		waitFor(t, func() bool { return began.Load() == int64(n) })
		wheel := weak.Make(w)
		w = nil
		waitForGarbage(t, func() bool { return wheel.Value() == nil })
		close(release)
	}
}
