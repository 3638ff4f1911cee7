package timingwheel_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// owners are goroutines that share a Keyed, its stripes and the wheel's shards. Time stands
// still while one of them does something.
type owners struct {
	t      *testing.T
	w      *timingwheel.TimingWheel
	k      *timingwheel.Keyed[int]
	tick   time.Duration
	start  time.Time
	ending atomic.Bool // Stop or Shutdown is about to be called, or was

	handedBack bool   // the functions that Stop has returned are called
	calledLast *visit // by these calls
}

// owner has keys of its own, and a dumb reference for them. So it knows what each of its
// calls must return, and when each function must start: on its tick to the nanosecond.
type owner struct {
	*owners
	first  int // the first of its keys
	random *rand.Rand

	mu   sync.Mutex // held for each call, and while a function is checked
	keys [5]*visit  // what each key was scheduled for last
	left int        // visits that are not over
}

// visit is a function that a key was scheduled for.
type visit struct {
	due    time.Duration // when it must start
	onTick time.Duration // the same, rounded up to a tick
	over   bool          // it has started, or was dropped
}

// soon is how long nobody sleeps. Only the longest delay is longer.
const soon time.Duration = 1 << 50

func (o *owners) now() time.Duration { return o.w.Now().Sub(o.start) }

// set gives a visit the delay d from now.
func (o *owners) set(v *visit, d time.Duration) {
	v.due = o.now() + max(0, d)
	if v.due < 0 {
		v.due = math.MaxInt64
	}
	v.onTick = v.due
	if rest := v.due % o.tick; rest > 0 {
		v.onTick += min(o.tick-rest, math.MaxInt64-v.due)
	}
	if d > 0 {
		v.due = v.onTick
	}
}

// outcome checks what a call has said of a key: whether its function was there. While the
// function is due now, it may have started, and wait for mu. Once the wheel ends, Stop may have
// handed the function back, and Shutdown refuses a later time. Otherwise there is one answer.
func (o *owner) outcome(call string, v *visit, was bool) {
	now := o.now()
	switch {
	case !was && o.ending.Load():
	case v == nil || v.over:
		if was {
			o.t.Errorf("%s found a function, but there is none", call)
		}
	case v.due < now:
		o.t.Errorf("%s at %v: the function was due at %v, and has not started", call, now, v.due)
	case v.due > now && !was:
		o.t.Errorf("%s at %v has not found the function that is due at %v", call, now, v.due)
	}
}

func (o *owner) end(v *visit) {
	v.over = true
	o.left--
}

// function returns the function of a visit. It may schedule its key anew.
func (o *owner) function(i int, v *visit) func() {
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		switch now := o.now(); {
		case v.over:
			o.t.Errorf("a function starts that has started before or was dropped, due at %v", v.due)
			return
		case o.handedBack:
			o.calledLast = v
		case now != v.due:
			o.t.Errorf("a function starts at %v that is due at %v", now, v.due)
		}
		o.end(v)
		if !o.handedBack && o.random.IntN(4) == 0 {
			o.schedule(i, o.delay())
		}
	}
}

func (o *owner) schedule(i int, d time.Duration) {
	was, v := o.keys[i], &visit{}
	o.set(v, d)
	replaced, err := o.k.Schedule(o.first+i, d, o.function(i, v))
	if err != nil {
		if !errors.Is(err, timingwheel.ErrStopped) || !o.ending.Load() {
			o.t.Errorf("Schedule: %v", err)
		}
		return
	}
	o.outcome("Schedule", was, replaced)
	if replaced {
		o.end(was)
	}
	o.keys[i] = v
	o.left++
}

func (o *owner) cancel(i int) {
	canceled := o.k.Cancel(o.first + i)
	o.outcome("Cancel", o.keys[i], canceled)
	if canceled {
		o.end(o.keys[i])
	}
}

func (o *owner) reset(i int, d time.Duration) {
	moved := o.k.Reset(o.first+i, d)
	o.outcome("Reset", o.keys[i], moved)
	if moved {
		o.set(o.keys[i], d)
	}
}

func (o *owner) deadline(i int) {
	at, ok := o.k.Deadline(o.first + i)
	o.outcome("Deadline", o.keys[i], ok)
	if ok && !at.Equal(o.start.Add(o.keys[i].onTick)) {
		o.t.Errorf("Deadline says %v, not %v", at.Sub(o.start), o.keys[i].onTick)
	}
}

// all looks for the keys of this owner among all.
func (o *owner) all() {
	seen := [len(o.keys)]bool{}
	for key, at := range o.k.All() {
		i := key - o.first
		if i < 0 || i >= len(o.keys) {
			continue
		}
		if seen[i] {
			o.t.Errorf("All yields key %d twice", key)
		}
		seen[i] = true
		if !at.Equal(o.start.Add(o.keys[i].onTick)) {
			o.t.Errorf("All says %v, not %v", at.Sub(o.start), o.keys[i].onTick)
		}
	}
	for i, v := range o.keys {
		o.outcome("All", v, seen[i])
	}
}

// delay is now and then zero, negative or the longest.
func (o *owner) delay() time.Duration {
	switch o.random.IntN(12) {
	case 0:
		return 0
	case 1:
		return -time.Duration(o.random.Int64())
	case 2:
		return math.MaxInt64
	case 3, 4, 5, 6:
		return time.Duration(o.random.IntN(6)) * o.tick
	}
	return time.Duration(o.random.Int64N(1 << (10 + o.random.IntN(36))))
}

// act makes one call, or says how long to sleep.
func (o *owner) act() (sleep time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := o.random.IntN(len(o.keys))
	switch o.random.IntN(12) {
	case 0, 1, 2:
		o.schedule(i, o.delay())
	case 3, 4, 5:
		o.reset(i, o.delay())
	case 6:
		o.cancel(i)
	case 7:
		o.deadline(i)
	case 8:
		o.all()
	case 9:
		return time.Duration(o.random.Int64N(int64(4 * o.tick)))
	default: // to the instant of a deadline, or just short of it
		if v := o.keys[i]; v != nil && !v.over && v.due-o.now() < soon {
			return v.due - o.now() - time.Duration(o.random.IntN(2))
		}
	}
	return 0
}

// Several goroutines share a Keyed on a wheel of several shards. Each of their calls returns what the
// key's own history says, each function starts once, and on its tick. Stop and Shutdown may come at any
// time.
func TestKeyedOfManyOwners(t *testing.T) {
	executors := map[string]func() timingwheel.Executor{
		"goroutines": timingwheel.Goroutines,
		"inline":     timingwheel.Inline,
		"pool":       func() timingwheel.Executor { return newPool(2, 1, fullWait) },
	}
	for name, executor := range executors {
		for seed := range uint64(unlessShort(30, 6)) {
			t.Run(fmt.Sprintf("%s,seed=%d", name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { liveOwners(t, seed, timingwheel.WithExecutor(executor())) })
			})
			if name != "pool" { // a wheel that is driven by hand cannot have one of pool.Wait
				t.Run(fmt.Sprintf("%s,manual,seed=%d", name, seed), func(t *testing.T) { advanceOwners(t, seed, timingwheel.WithExecutor(executor())) })
			}
		}
	}
}

func newOwners(t *testing.T, seed uint64, opts ...timingwheel.Option) (all *owners, each []*owner, random *rand.Rand) {
	random = rand.New(rand.NewPCG(seed, 0))
	ticks := []time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Hour}
	all = &owners{t: t, tick: ticks[random.IntN(len(ticks))]}
	all.w = timingwheel.New(append(opts, timingwheel.WithTick(all.tick), timingwheel.WithWheelSize(2<<random.IntN(4)), timingwheel.WithShards(4))...)
	all.start = all.w.Now()
	all.k = timingwheel.NewKeyed[int](all.w)
	for n := range 4 {
		each = append(each, &owner{owners: all, first: 100 * n, random: rand.New(rand.NewPCG(seed, uint64(1+n)))})
	}
	return all, each, random
}

// liveOwners gives each owner a goroutine that sleeps by itself, in a bubble.
func liveOwners(t *testing.T, seed uint64, executor timingwheel.Option) {
	all, each, random := newOwners(t, seed, executor)
	defer all.w.Stop()
	var pending []timingwheel.Pending
	var wg sync.WaitGroup
	for _, o := range each {
		wg.Go(func() {
			for range 300 {
				time.Sleep(max(0, o.act()))
			}
		})
	}
	if how := random.IntN(3); how > 0 {
		wg.Go(func() {
			time.Sleep(time.Duration(random.Int64N(int64(100 * all.tick))))
			pending = all.stop(how == 1)
		})
	}
	wg.Wait()
	time.Sleep(soon)
	synctest.Wait()
	all.finish(each, pending)
}

// advanceOwners lets the owners call at the same time, and then moves a manual clock.
func advanceOwners(t *testing.T, seed uint64, executor timingwheel.Option) {
	all, each, random := newOwners(t, seed, executor, timingwheel.WithManualClock(time.Time{}))
	defer all.w.Stop()
	var pending []timingwheel.Pending
	end, how := random.IntN(300), random.IntN(3)
	for step := range 300 {
		sleeps := make([]time.Duration, len(each))
		var wg sync.WaitGroup
		for n, o := range each {
			wg.Go(func() { sleeps[n] = o.act() })
		}
		if step == end && how > 0 {
			wg.Go(func() { pending = all.stop(how == 1) })
		}
		wg.Wait()
		all.w.Advance(max(0, sleeps[step%len(each)]))
	}
	all.w.Advance(soon)
	waitFor(t, func() bool { return all.w.Stats().Running == 0 })
	all.finish(each, pending)
}

// stop ends the wheel, or lets it accept no more.
func (o *owners) stop(now bool) (pending []timingwheel.Pending) {
	o.ending.Store(true)
	if now {
		return o.w.Stop()
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := o.w.Shutdown(ctx); err != nil && !errors.Is(err, context.Canceled) {
		o.t.Error(err)
	}
	return nil
}

// finish calls the functions that Stop hands back. Unless it came sooner, only those with the longest
// delay are left. Nothing else is under way.
func (o *owners) finish(each []*owner, pending []timingwheel.Pending) {
	for _, of := range each {
		of.all()
	}
	o.ending.Store(true)
	o.handedBack = true
	for _, p := range append(pending, o.w.Stop()...) {
		o.calledLast = nil
		p.Func()
		require.NotNil(o.t, o.calledLast)
		require.Equal(o.t, o.calledLast.onTick, p.Deadline.Sub(o.start))
	}
	for _, of := range each {
		require.Zero(o.t, of.left, "functions that have neither started nor been dropped or handed back")
	}
	require.Zero(o.t, o.k.Len())
	require.Zero(o.t, o.w.Len())
}
