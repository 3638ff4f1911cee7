package engine

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// From the mark on a shard fires nothing, whatever was on its way: what waits at the gate, the
// rest of a cascade, and a bucket that is being dropped. Marking it again changes nothing.
func TestMarkOfStopEndsAllThatWasOnItsWay(t *testing.T) {
	w := manual()
	s, d := &w.shards[0], &w.driver
	for range 2 * SliceLen {
		addFunction(s, 0, mustNotRun)
	}
	addFunction(s, time.Hour, mustNotRun)
	var emptied timeout
	emptied, _ = w.Schedule(time.Minute, mustNotRun)
	cascade := &s.overdueCascade
	due, ok := d.queue.Poll()
	require.True(t, ok)
	require.True(t, s.expire(due, &d.found)) // the first slice
	require.Len(t, d.found.tasks, SliceLen)
	d.found.tasks = nil
	w.runner.Running.Store(0)
	s.mu.Lock()
	i := cascade.ring.TakeFirst(&s.arena)
	s.wait(i)
	s.mu.Unlock()
	require.True(t, emptied.Cancel())
	head, _, ok := d.queue.Peek()
	require.True(t, ok)

	for range 2 {
		s.stop()
		require.Zero(t, d.numWaiting.Load())
		require.EqualValues(t, int64(math.MaxInt64), s.waitsSince.Load())
	}
	var out dueTasks
	s.takeWaiting(&out, SliceLen)
	require.Empty(t, out.tasks)
	require.False(t, s.flush(cascade, &d.found))
	require.Empty(t, d.found.tasks)
	require.False(t, s.dropEmpty(head))
	require.Len(t, w.Stop(), SliceLen+1)
	require.Nil(t, s.heir, "it keeps what was handed back")
	require.False(t, s.dropEmpty(head))
	require.False(t, s.flush(cascade, &d.found))
	require.Zero(t, w.Len())
	require.Zero(t, d.numWaiting.Load())
}

// A pass holds the lock for a slice at a time, and is done with an entry once it has reached it.
func TestPassGoesSliceBySlice(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	for range 2 * SliceLen {
		addOwn(s, time.Hour, noop)
		addFunction(s, time.Hour, mustNotRun)
	}
	s.close()
	chunk, more := s.closeSlice(0)
	require.True(t, more)
	require.Equal(t, 3*SliceLen, s.len())
	require.False(t, s.dismissing)
	for more {
		chunk, more = s.closeSlice(chunk)
	}
	require.Equal(t, 2*SliceLen, s.len())
	s.stop()
	var c collector
	chunk, more = s.stopSlice(0, 100, &c)
	require.True(t, more)
	require.Len(t, c.pending, 100)
	for more {
		chunk, more = s.stopSlice(chunk, 100, &c)
	}
	require.Len(t, c.pending, 2*SliceLen)
}

// While a pass is under way, what is canceled moves no other entry to where the pass has been.
func TestPassMissesNothingWhenOthersAreCanceled(t *testing.T) {
	const functions = 20_000
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	timeouts := make([]timeout, functions)
	for i := range timeouts {
		timeouts[i], _ = w.Schedule(time.Hour, mustNotRun)
	}
	for range 100 {
		addOwn(s, time.Hour, noop)
	}
	s.close()
	chunk, more := 0, true
	for chunk < 4 {
		chunk, more = s.closeSlice(chunk)
		require.True(t, more)
	}
	for i := range timeouts {
		if i%500 != 0 {
			require.True(t, timeouts[i].Cancel())
		}
	}
	for more {
		chunk, more = s.closeSlice(chunk)
	}
	require.Equal(t, functions/500, s.len())
	requireSettled(t, w)
	s.stop()
	require.False(t, timeouts[0].Reset(time.Minute), "it fires no more")
}

// A task that is handed over while Shutdown looks from shard to shard is seen as pending
// or as running. Here it is in the last of many shards, and takes a while.
func TestShutdownSeesATaskOnItsWay(t *testing.T) {
	rounds := unlessShort(500, 50)
	for range rounds {
		w := newTestWheel(withShards(256))
		var ended atomic.Bool
		s := &w.shards[len(w.shards)-1]
		s.lock()
		_, err := s.accept(Delay{}, func() { time.Sleep(100 * time.Microsecond); ended.Store(true) }, OneShot)
		s.mu.Unlock()
		require.NoError(t, err)
		require.NoError(t, w.Shutdown(t.Context()))
		require.True(t, ended.Load())
	}
}

// Shutdown ends as Stop does: with the driver, the queue and all that belongs to the wheel.
func TestShutdownStopsTheWheel(t *testing.T) {
	w := manual()
	s := &w.shards[0]
	canceled, err := w.Schedule(time.Hour, mustNotRun)
	require.NoError(t, err)
	require.True(t, canceled.Cancel())
	require.NoError(t, w.Shutdown(t.Context()))
	require.True(t, s.stopped)
	require.ErrorIs(t, context.Cause(w.ctx), ErrStopped)
	require.Zero(t, w.driver.queue.Len())
	require.Zero(t, s.arena.Cap(), "it keeps memory")
}

// When its context has ended in the middle of one shard, the others have their turn all the same.
func TestShutdownMovesAllShardsInTheBackground(t *testing.T) {
	const shards = 4
	w := newTestWheel(withManualDrive(), withShards(shards))
	defer w.Stop()
	var dismissed atomic.Int64
	for i := range w.shards {
		for range 2 * SliceLen {
			addOwn(&w.shards[i], time.Hour, func() { dismissed.Add(1) })
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	w.closeShards(ended)
	waitUntil(t, func() bool { return w.Len() == 0 })
	require.EqualValues(t, shards*2*SliceLen, dismissed.Load())
}

// A task goes from pending to running. Shutdown looks in that order, and does not miss it.
func TestShutdownLooksAtWhatIsPendingFirst(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	addFunction(s, 0, noop)
	s.lock()
	quiet := make(chan bool)
	go func() { quiet <- w.isQuiet() }()
	waitUntil(t, s.fairness.atTurnstile.Load)
	for i := range s.arena.All() {
		s.arena.Unlink(i)
		s.remove(i)
	}
	w.runner.Admit(1)
	s.unlock()
	require.False(t, <-quiet)
	w.runner.Run(run.Function(noop))
	require.True(t, w.isQuiet())
}

// A batch that is being added is accepted as a whole: Shutdown and Stop wait for it.
func TestClosingWaitsForABatch(t *testing.T) {
	for name, end := range map[string]func(w *testWheel){
		"Shutdown": func(w *testWheel) { w.markClosed() },
		"Stop":     func(w *testWheel) { w.stopShards() },
	} {
		t.Run(name, func(t *testing.T) {
			w := manual()
			defer w.Stop()
			w.BeginBatch()
			ended := make(chan bool)
			begun := make(chan bool)
			go func() { close(begun); end(w); close(ended) }()
			<-begun
			time.Sleep(20 * time.Millisecond)
			early := w.Stats().Closed
			w.EndBatch()
			<-ended
			require.False(t, early)
			require.True(t, w.Stats().Closed)
		})
	}
}

// The pass of stop frees the arena on the way.
func TestPassFreesTheArena(t *testing.T) {
	tasks := unlessShort(300_000, 100_000)
	w := newTestWheel(withManualDrive(), withShards(1))
	s := &w.shards[0]
	for i := range tasks {
		addFunction(s, time.Duration(i*7919%tasks)*time.Millisecond, noop)
	}
	w.stopShards()
	var c collector
	c.Expect(int64(tasks))
	for chunk := 0; len(c.pending) < tasks/2; {
		chunk, _ = s.stopSlice(chunk, SliceLen, &c)
		require.LessOrEqual(t, s.arena.Cap()+len(c.pending), tasks+4*1024)
	}
	require.Len(t, append(c.pending, w.Stop()...), tasks)
}

// Between the slices of the pass, what it has not come to yet can be canceled, and nothing can
// be reset. Each function is either canceled or handed back.
func TestCallsBetweenTheSlicesOfStop(t *testing.T) {
	r := newRandForTest(t)
	for range unlessShort(300, 50) {
		w := virtual()
		s := &w.shards[0]
		var timers []*timer
		resets := 0
		for range r.IntN(300) {
			d := time.Duration(r.Int64N(1 << (20 + r.IntN(20))))
			timers = append(timers, w.AfterFunc(d, noop))
			for range r.IntN(4) {
				require.True(t, timers[len(timers)-1].Reset(2*d))
				resets++
			}
		}
		addOwn(s, time.Hour, noop)
		var c collector
		oneShots, _ := w.stopShards()
		require.Equal(t, s.oneShots, oneShots)
		canceled := 0
		for chunk, more := 0, true; more; {
			chunk, more = s.stopSlice(chunk, 1+r.IntN(5), &c)
			if len(timers) == 0 {
				continue
			}
			if timer := timers[r.IntN(len(timers))]; timer.Stop() {
				canceled++
			}
			require.False(t, timers[r.IntN(len(timers))].Reset(-1))
			w.verifyStats(t)
		}
		require.Equal(t, len(timers), canceled+len(c.pending))
		require.EqualValues(t, resets, w.Stats().Reset, "those without the lock are counted, too")
		w.Stop()
		w.verify(t)
	}
}
