package timingwheel

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// verify checks the ring of the group against its count.
func (g *Group) verify(t testing.TB) {
	t.Helper()
	g.door.LockShard()
	defer g.door.UnlockShard()
	n := 0
	for m := g.members.next; m != &g.members; m = m.next {
		require.Same(t, m, m.next.prev)
		require.NotNil(t, m.f)
		require.NotEqual(t, m.queued, m.entry.Pending(), "it waits on the wheel or in the executor's queue")
		n++
	}
	require.Equal(t, n, g.len)
	spares := 0
	for m := g.spare; m != nil; m = m.next {
		require.Nil(t, m.f)
		require.False(t, m.queued || m.entry.Pending())
		spares++
	}
	require.Equal(t, spares, g.spares)
	require.LessOrEqual(t, spares, maxSpares)
}

func TestGroup(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *TimingWheel, log *timeLog) {
		g := NewGroup(w)
		require.Zero(t, g.Len())
		timeout, err := g.Schedule(10*msec, log.note)
		require.NoError(t, err)
		timer := g.AfterFunc(20*msec, log.note)
		other := w.AfterFunc(25*msec, log.note)
		require.Equal(t, 2, g.Len())
		require.Equal(t, 3, w.Len())
		g.verify(t)

		require.True(t, timeout.Reset(15*msec))
		time.Sleep(18 * msec)
		require.Equal(t, []time.Duration{15 * msec}, log.take())
		require.False(t, timeout.Cancel())
		require.Equal(t, 1, g.Len())
		require.True(t, timer.Stop())
		require.Zero(t, g.Len(), "what a handle cancels leaves the group")
		require.False(t, timer.Reset(msec), "and comes back")
		require.Equal(t, 1, g.Len())
		g.verify(t)
		time.Sleep(second)
		require.Equal(t, []time.Duration{19 * msec, 25 * msec}, log.take())
		require.False(t, timer.Reset(10*msec), "also after it has fired")
		timeout, err = g.Schedule(10*msec, log.note)
		require.NoError(t, err)
		require.Equal(t, 2, g.Stop())
		require.Zero(t, w.Len())
		require.False(t, timeout.Cancel())
		require.False(t, timer.Stop())
		require.False(t, timer.Reset(msec), "not after Stop")
		_, ok := timer.Deadline()
		require.False(t, ok)
		dead := g.AfterFunc(0, log.note)
		require.False(t, dead.Stop())
		require.False(t, dead.Reset(0))
		_, err = g.Schedule(0, log.note)
		require.Equal(t, ErrStopped, err)
		require.Zero(t, g.Stop())
		require.NoError(t, g.StopWait(t.Context()))
		require.False(t, other.Stop(), "it has fired")
		g.verify(t)
		w.verify(t)
		time.Sleep(second)
		require.Empty(t, log.take())
	})
}

func TestGroupEdges(t *testing.T) {
	w := New(WithMaxPending(2), WithManualDrive(), WithExecutor(Inline()))
	g := NewGroup(w)
	require.PanicsWithValue(t, "timingwheel: NewGroup(nil)", func() { NewGroup(nil) })
	require.PanicsWithValue(t, "timingwheel: Group.Schedule: nil function", func() { g.Schedule(0, nil) })
	require.PanicsWithValue(t, "timingwheel: Group.AfterFunc: nil function", func() { g.AfterFunc(0, nil) })
	ran := 0
	f := func() { ran++ }
	_, err := g.Schedule(time.Hour, f)
	require.NoError(t, err)
	due, err := g.Schedule(-1, f)
	require.NoError(t, err)
	_, err = g.Schedule(0, f)
	require.Equal(t, ErrTooManyPending, err)
	requireDead(t, g.AfterFunc(0, f))
	require.EqualValues(t, 2, w.Stats().Rejected)
	g.verify(t)
	require.Equal(t, 1, g.spares, "the second that was refused has used that of the first")
	require.Equal(t, 1, w.Drive(0))
	require.Equal(t, 1, ran)
	require.Equal(t, 2, g.spares, "that of the one that ran")
	require.False(t, due.Reset(0))
	timer := g.AfterFunc(time.Hour, f)
	w.verify(t)

	// A task that the wheel's Stop hands back does not count as canceled by the group.
	pending := w.Stop()
	require.Len(t, pending, 2)
	for _, p := range pending {
		p.Func()
		require.True(t, p.Deadline.After(time.Now()))
	}
	require.Equal(t, 3, ran)
	require.Zero(t, g.Len())
	require.False(t, timer.Stop())
	require.False(t, timer.Reset(0))
	_, err = g.Schedule(0, f)
	require.Equal(t, ErrStopped, err)
	require.Zero(t, g.Stop())
	require.NoError(t, g.StopWait(t.Context()))
	w.verify(t)
	_, err = NewGroup(w).Schedule(0, f)
	require.Equal(t, ErrStopped, err)
}

// Stop wins against what the executor has in its queue, and tells how many.
func TestGroupStopWinsAgainstTheQueue(t *testing.T) {
	var queue []func()
	w := New(WithManualDrive(), WithShards(1), WithExecutor(ExecutorFunc(func(task func()) { queue = append(queue, task) })))
	g := NewGroup(w)
	ran := 0
	var inside int
	g.Schedule(0, func() { ran++; inside = g.Stop() })
	for range 3 {
		g.Schedule(0, func() { ran++ })
	}
	g.Schedule(time.Hour, func() { ran++ })
	require.Equal(t, 4, w.Drive(0))
	require.Equal(t, 5, g.Len())
	g.verify(t)
	for _, task := range queue {
		task()
	}
	require.Equal(t, 1, ran)
	require.Equal(t, 4, inside)
	queue[1]() // an executor that runs a task twice, what none should
	require.Equal(t, 1, ran)
	st := w.Stats()
	require.EqualValues(t, 4, st.Expired)
	require.EqualValues(t, 1, st.Stopped)
	require.Empty(t, w.Stop())
}

// An executor that runs a task twice, what none should, runs no other function with it.
func TestGroupTaskThatRunsTwice(t *testing.T) {
	var queue []func()
	w := New(WithManualDrive(), WithExecutor(ExecutorFunc(func(task func()) { queue = append(queue, task) })))
	g := NewGroup(w)
	ran := 0
	g.Schedule(0, func() { ran++ })
	require.Equal(t, 1, w.Drive(0))
	queue[0]()
	queue[0]()
	g.Schedule(time.Hour, mustNotRun) // with the member of the first
	queue[0]()
	require.Equal(t, 1, ran)
	g.verify(t)
	require.Equal(t, 1, g.Stop())
	require.Empty(t, w.Stop())
}

func TestGroupStopWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New()
		defer w.Stop()
		g := NewGroup(w)
		start := time.Now()
		g.Schedule(msec, func() { time.Sleep(second) })
		g.Schedule(msec, func() { time.Sleep(2 * second); runtime.Goexit() })
		g.Schedule(time.Hour, mustNotRun)
		time.Sleep(10 * msec)
		cause := errors.New("no patience")
		ctx, cancel := context.WithTimeoutCause(t.Context(), msec, cause)
		defer cancel()
		require.Equal(t, cause, g.StopWait(ctx))
		require.Equal(t, 11*msec, time.Since(start))
		require.NoError(t, g.StopWait(t.Context()))
		require.Equal(t, 2*second+msec, time.Since(start))
		require.NoError(t, g.StopWait(ctx), "though ctx has ended")

		// A function that waits for itself waits until its context ends.
		g = NewGroup(w)
		self := make(chan error, 1)
		g.Schedule(0, func() {
			ctx, cancel := w.WithTimeout(t.Context(), second)
			defer cancel()
			self <- g.StopWait(ctx)
		})
		require.Equal(t, context.DeadlineExceeded, <-self)
	})
}

func TestGroupDiscards(t *testing.T) {
	var discarded []func()
	pool := newPool(1, 0, fullDiscard(func(task func()) { discarded = append(discarded, task) }))
	pool.Close()
	w := New(WithManualDrive(), WithExecutor(pool))
	defer w.Stop()
	g := NewGroup(w)
	ran := 0
	g.Schedule(0, func() { ran++ })
	require.Equal(t, 1, w.Drive(0))
	require.Len(t, discarded, 1)
	require.Zero(t, g.Len())
	discarded[0]()
	require.Equal(t, 1, ran)
	g.verify(t)
	require.NoError(t, g.StopWait(t.Context()))
}

// A task that waits for room in a Pool is pending, and the group's Stop cancels it.
func TestGroupStopsWhatWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(1, 0, fullWait)
		w := New(WithExecutor(pool))
		g := NewGroup(w)
		release := make(chan bool)
		ran := 0
		for range 5 {
			g.Schedule(msec, func() { ran++; <-release })
		}
		time.Sleep(second)
		require.Equal(t, 4, w.Len())
		require.Equal(t, 4, g.Stop())
		require.Zero(t, w.Len())
		close(release)
		require.NoError(t, g.StopWait(t.Context()))
		require.Equal(t, 1, ran)
		require.NoError(t, w.Shutdown(t.Context()))
		pool.Close()
	})
}

func TestGroupAllocations(t *testing.T) {
	w := New()
	defer w.Stop()
	w.AfterFunc(time.Hour, noop) // keeps the arena's chunk in being
	g := NewGroup(w)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		timeout, _ := g.Schedule(time.Hour, noop)
		timeout.Cancel()
	}))
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { g.AfterFunc(time.Hour, noop).Stop() }), 1.0)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		g := NewGroup(w)
		g.Schedule(time.Hour, noop)
		g.Stop()
	}), 4.0, "a group, a member and a method of each")
}

// A group that is forgotten is garbage, with its functions, and a group that is stopped
// keeps none of them.
func TestForgottenGroup(t *testing.T) {
	w := New()
	defer w.Stop()
	forget := func(end func(g *Group, timeout Timeout)) (group weak.Pointer[Group], data weak.Pointer[[1 << 10]byte]) {
		g, big := NewGroup(w), new([1 << 10]byte)
		timeout, _ := g.Schedule(time.Hour, func() { big[0]++ })
		end(g, timeout)
		return weak.Make(g), weak.Make(big)
	}
	for _, end := range []func(*Group, Timeout){
		func(g *Group, _ Timeout) { g.Stop() },
		func(_ *Group, timeout Timeout) { timeout.Cancel() },
	} {
		group, data := forget(end)
		waitForGarbage(t, func() bool { return group.Value() == nil && data.Value() == nil })
	}
	var kept *Group
	_, data := forget(func(g *Group, timeout Timeout) { kept = g; timeout.Cancel() })
	waitForGarbage(t, func() bool { return data.Value() == nil }) // the spare member has its function no more
	runtime.KeepAlive(kept)
}

// Stop lets a caller that waits for the shard's lock in after every slice.
func TestGroupStopLetsTheWaitingCallerIn(t *testing.T) {
	const n = 20
	w := New(WithManualDrive(), WithShards(1))
	defer w.Stop()
	g := NewGroup(w)
	left := make(chan int)
	first := &groupTask{group: g, entry: g.door.Sibling()}
	first.task = func() { // Stop calls it first, with the lock held
		go func() { left <- g.Len() }()
		waitForCallers(t, 1)
		first.due()
	}
	g.spare, g.spares = first, 1
	for range n * engine.SliceLen {
		g.Schedule(time.Hour, noop)
	}
	go g.Stop()
	require.Equal(t, (n-1)*engine.SliceLen, <-left)
}

// A group keeps at most maxSpares members that have left it, because no member that it keeps holds
// one that it does not keep.
func TestGroupKeepsFewMembers(t *testing.T) {
	w := New(WithManualDrive())
	defer w.Stop()
	g := NewGroup(w)
	timeouts := make([]Timeout, 10*maxSpares)
	for i := range timeouts {
		timeouts[i], _ = g.Schedule(time.Hour, noop)
	}
	var members []weak.Pointer[groupTask]
	for m := g.members.next; m != &g.members; m = m.next {
		members = append(members, weak.Make(m))
	}
	for _, timeout := range slices.Backward(timeouts) {
		require.True(t, timeout.Cancel())
	}
	waitForGarbage(t, func() bool {
		left := 0
		for _, m := range members {
			if m.Value() != nil {
				left++
			}
		}
		return left <= maxSpares
	})
	g.verify(t)
}

// With everything at once, each function runs or was canceled, once; and after StopWait
// none runs.
func TestGroupStress(t *testing.T) {
	w := New(WithTick(10 * time.Microsecond))
	defer w.Stop()
	for round := range 30 {
		g := NewGroup(w)
		var accepted, ran, canceled atomic.Int64
		var over atomic.Bool
		f := func() {
			if over.Load() {
				t.Error("a function begins after StopWait")
			}
			ran.Add(1)
		}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := range 1000 {
					d := time.Duration((n*7+i)%40) * 10 * time.Microsecond
					switch n % 4 {
					case 0:
						if timer := g.AfterFunc(d, f); timer.special().f != nil {
							accepted.Add(1)
							if timer.Stop() {
								canceled.Add(1)
							} else if over.Load() && timer.Reset(d) {
								t.Error("a timer of a stopped group was reset")
							}
						}
					default:
						timeout, err := g.Schedule(d, f)
						if err != nil {
							return
						}
						accepted.Add(1)
						if n%4 == 1 && timeout.Cancel() {
							canceled.Add(1)
						}
						timeout.Reset(d)
					}
				}
			})
		}
		if round%2 == 0 {
			wg.Go(func() {
				time.Sleep(time.Duration(round) * 20 * time.Microsecond)
				canceled.Add(int64(g.Stop()))
			})
		}
		wg.Wait()
		g.verify(t)
		canceled.Add(int64(g.Stop()))
		require.NoError(t, g.StopWait(t.Context()))
		over.Store(true)
		require.Equal(t, accepted.Load(), ran.Load()+canceled.Load())
		require.Zero(t, g.Len())
		g.verify(t)
	}
}
