package timingwheel_test

import (
	"context"
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

// owners are goroutines that share a Keyed, its stripes and the wheel's shards. In their
// bubble time stands still while one of them does something.
type owners struct {
	t      *testing.T
	k      *timingwheel.Keyed[int]
	tick   time.Duration
	start  time.Time
	ending atomic.Bool // Stop or Shutdown is about to be called, or was

	handedBack bool   // what Stop has returned is called
	calledLast *visit // then
}

// owner has keys of its own, and a dumb reference for them. So it knows what each of its
// calls must return, and when each function must start: on its tick to the nanosecond.
type owner struct {
	*owners
	first  int // the first of its keys
	random *rand.Rand

	mu   sync.Mutex // held for each call, and while a function is checked
	keys [5]*visit  // what each key was scheduled for last
	left int        // visits that have neither started nor been dropped
}

// visit is a function that a key was scheduled for.
type visit struct {
	due    time.Duration // when it must start
	onTick time.Duration // the same, rounded up to a tick
	over   bool          // it has started, or was dropped
}

func (o *owners) now() time.Duration { return time.Since(o.start) }

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
// function is due now, it may have started, and wait for mu. Otherwise there is one answer.
func (o *owner) outcome(call string, v *visit, was bool) {
	now := o.now()
	switch {
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

func (o *owner) drop(v *visit) {
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
		case o.handedBack:
			o.calledLast = v
		case now != v.due:
			o.t.Errorf("a function starts at %v that is due at %v", now, v.due)
		}
		o.drop(v)
		if !o.handedBack && o.random.IntN(4) == 0 {
			o.schedule(i, o.delay())
		}
	}
}

func (o *owner) schedule(i int, d time.Duration) {
	was, v, ending := o.keys[i], &visit{}, o.ending.Load()
	o.set(v, d)
	replaced, err := o.k.Schedule(o.first+i, d, o.function(i, v))
	if err != nil {
		if err != timingwheel.ErrStopped || !o.ending.Load() {
			o.t.Errorf("Schedule: %v", err)
		}
		return
	}
	if !ending || replaced { // or else Stop may have handed the old one back
		o.outcome("Schedule", was, replaced)
	}
	if replaced {
		o.drop(was)
	}
	o.keys[i] = v
	o.left++
}

func (o *owner) cancel(i int) {
	ending := o.ending.Load()
	canceled := o.k.Cancel(o.first + i)
	if !ending || canceled {
		o.outcome("Cancel", o.keys[i], canceled)
	}
	if canceled {
		o.drop(o.keys[i])
	}
}

func (o *owner) reset(i int, d time.Duration) {
	v, ending := o.keys[i], o.ending.Load()
	moved := o.k.Reset(o.first+i, d)
	if !ending || moved {
		o.outcome("Reset", v, moved)
	}
	if moved {
		o.set(v, d)
	}
}

func (o *owner) deadline(i int) {
	v, ending := o.keys[i], o.ending.Load()
	at, ok := o.k.Deadline(o.first + i)
	if !ending || ok {
		o.outcome("Deadline", v, ok)
	}
	if ok && !at.Equal(o.start.Add(v.onTick)) {
		o.t.Errorf("Deadline says %v, not %v", at.Sub(o.start), v.onTick)
	}
}

// all looks for the keys of this owner among all.
func (o *owner) all() {
	ending, seen := o.ending.Load(), [len(o.keys)]bool{}
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
		if !ending || seen[i] {
			o.outcome("All", v, seen[i])
		}
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
		if v := o.keys[i]; v != nil && !v.over && v.due < 1<<50 {
			return v.due - o.now() - time.Duration(o.random.IntN(2))
		}
	}
	return 0
}

// Several goroutines share a Keyed on a wheel of several shards. Each of their calls returns what the
// key's own history says, each function starts on its tick and once, and Stop and Shutdown may come
// at any time.
func TestKeyedOfManyOwners(t *testing.T) {
	executors := map[string]func() timingwheel.Option{
		"goroutines": func() timingwheel.Option { return timingwheel.WithExecutor(timingwheel.Goroutines()) },
		"inline":     func() timingwheel.Option { return timingwheel.WithExecutor(timingwheel.Inline()) },
		"pool":       func() timingwheel.Option { return timingwheel.WithExecutor(newPool(2, 1, fullWait)) },
	}
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(unlessShort(30, 6)) {
				synctest.Test(t, func(t *testing.T) { runOwners(t, seed, executor()) })
			}
		})
	}
}

func runOwners(t *testing.T, seed uint64, executor timingwheel.Option) {
	random := rand.New(rand.NewPCG(seed, 0))
	ticks := []time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Hour}
	all := &owners{t: t, tick: ticks[random.IntN(len(ticks))], start: time.Now()}
	w := timingwheel.New(executor, timingwheel.WithTick(all.tick), timingwheel.WithWheelSize(2<<random.IntN(4)), timingwheel.WithShards(4))
	defer w.Stop()
	all.k = timingwheel.NewKeyed[int](w)
	var each []*owner
	var wg sync.WaitGroup
	for n := range 4 {
		o := &owner{owners: all, first: 100 * n, random: rand.New(rand.NewPCG(seed, uint64(1+n)))}
		each = append(each, o)
		wg.Go(func() {
			for range 300 {
				if d := o.act(); d > 0 {
					time.Sleep(d)
				}
			}
		})
	}
	var pending []timingwheel.Pending
	end := random.IntN(3)
	if end > 0 {
		wg.Go(func() {
			time.Sleep(time.Duration(random.Int64N(int64(100 * all.tick))))
			all.ending.Store(true)
			if end == 1 {
				pending = w.Stop()
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), 1)
			defer cancel()
			if err := w.Shutdown(ctx); err != nil && err != context.DeadlineExceeded {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	finishOwners(t, w, all, each, pending)
}

// finishOwners lets what is left come due, but for the functions that are due in years, and
// calls the functions that Stop has handed back.
func finishOwners(t *testing.T, w *timingwheel.TimingWheel, all *owners, each []*owner, pending []timingwheel.Pending) {
	if len(pending) == 0 && !all.ending.Load() {
		for _, o := range each {
			o.mu.Lock()
			for i, v := range o.keys {
				if v != nil && !v.over && v.due > 1<<50 {
					o.cancel(i)
				}
			}
			o.mu.Unlock()
		}
	}
	all.ending.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 1<<52)
	defer cancel()
	err := w.Shutdown(ctx)
	pending = append(pending, w.Stop()...)
	require.True(t, err == nil || len(pending) > 0, err)
	synctest.Wait()
	all.handedBack = true
	for _, p := range pending {
		all.calledLast = nil
		p.Func()
		require.NotNil(t, all.calledLast)
		require.Equal(t, all.calledLast.onTick, p.Deadline.Sub(all.start))
	}
	for _, o := range each {
		require.Zero(t, o.left, fmt.Sprintf("functions of %d have neither started nor been dropped or handed back", o.first))
	}
	require.Zero(t, all.k.Len())
	require.Zero(t, w.Len())
}
