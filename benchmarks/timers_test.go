package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// timers is one instance of a subject that runs functions after a delay. Its user numbers
// the timers. An instance keeps the handles itself, because their types differ, and in an
// interface value some would cost an allocation that users do not pay. The interface costs
// each call a nanosecond or two, the same for all.
type timers interface {
	// keep makes room for the handles of n timers, from number 0 on. A timer with a higher
	// number drops its handle.
	keep(n int)
	// add starts timer i.
	add(i int, d time.Duration, f func())
	cancel(i int)
	// reset makes timer i, which is pending, run d from now. A subject without a Reset
	// cancels the timer and adds another with f, which is the timer's function.
	reset(i int, d time.Duration, f func())
	stop()
}

// setup is what a benchmark asks of the subjects.
type setup struct {
	pending int           // a subject that bears fewer timers is left out
	tick    time.Duration // for subjects that have one to choose; zero means a millisecond
	slots   int           // of a wheel; zero means as many as suit the subject best
	shards  int           // of tickwheel; zero means its own choice
	aligned time.Duration // begin at a multiple of this time since 1970
}

// Names of subjects. The first of a benchmark is the one to which ratios are taken.
const (
	pair   = "time.AfterFunc wheel.Schedule"
	ours   = pair + " wheel.AfterFunc"
	plain  = ours + " RussellLuo go-zero gost heap"
	firing = "time.AfterFunc wheel.Schedule wheel.Schedule+Inline wheel.AfterFunc RussellLuo go-zero gost heap"
)

// starter is a subject before an instance is made of it.
type starter struct {
	name   string
	most   int           // pending timers that it bears; zero means any number
	tick   time.Duration // its finest tick; zero means any
	byHand bool          // it runs no function by itself
	start  func(setup) timers
}

var starters = []starter{
	{name: "none", start: func(setup) timers { return none{} }},
	{name: "go", byHand: true, start: func(setup) timers { return goStatement{} }},
	{name: "time.AfterFunc", start: func(setup) timers { return standard() }},
	{name: "wheel.Schedule", start: func(s setup) timers { return schedule(s.wheel()) }},
	{name: "wheel.Schedule+Inline", start: func(s setup) timers {
		return schedule(s.wheel(timingwheel.WithExecutor(timingwheel.Inline())))
	}},
	{name: "wheel.Schedule+Precise", start: func(s setup) timers {
		s.tick = 100 * time.Microsecond // a tick of a millisecond would be most of the lateness
		return schedule(s.wheel(timingwheel.WithPreciseWakeups()))
	}},
	{name: "wheel.Schedule+ByHand", byHand: true, start: func(s setup) timers {
		return schedule(s.wheel(timingwheel.WithManualClock(time.Now())))
	}},
	{name: "wheel.Schedule+Pointer", start: func(s setup) timers { return byPointer(s.wheel()) }},
	{name: "wheel.Schedule+1ms", start: withTick(time.Millisecond)},
	{name: "wheel.Schedule+250us", start: withTick(250 * time.Microsecond)},
	{name: "wheel.Schedule+100us", start: withTick(100 * time.Microsecond)},
	{name: "wheel.AfterFunc", start: func(s setup) timers { return afterFunc(s.wheel()) }},
	{name: "context.WithTimeout", byHand: true, start: func(setup) timers { return ofContexts(context.WithTimeout, noop) }},
	{name: "wheel.WithTimeout", byHand: true, start: func(s setup) timers {
		w := s.wheel()
		return ofContexts(w.WithTimeout, func() { w.Stop() })
	}},
	{name: "wheel.Keyed", start: func(s setup) timers {
		w := s.wheel()
		return keyed{timingwheel.NewKeyed[int](w), w}
	}},
	{name: "mutex+map+AfterFunc", start: func(setup) timers { return &mapped{timers: map[int]*time.Timer{}} }},
	{name: "RussellLuo", tick: time.Millisecond, start: startLuo},
	{name: "go-zero", most: 1_000_000, tick: time.Millisecond, start: startGoZero},
	{name: "gost", most: 10_000, start: startGost},
	{name: "heap", start: startHeap},
}

// pick returns the subjects of these names, without those that cannot do what is asked.
func pick(s setup, names string) []subject[timers] {
	var picked []subject[timers]
	for name := range strings.FieldsSeq(names) {
		i := slices.IndexFunc(starters, func(st starter) bool { return st.name == name })
		st := starters[i]
		if st.most > 0 && s.pending > st.most || s.tick > 0 && s.tick < st.tick {
			continue
		}
		picked = append(picked, subject[timers]{name, func(b *testing.B) timers {
			if s.aligned > 0 {
				time.Sleep(s.aligned - time.Duration(time.Now().UnixNano())%s.aligned)
			}
			t := st.start(s)
			b.Cleanup(t.stop)
			return t
		}})
	}
	return picked
}

// kept makes timers of the functions of a subject whose handles have the type H.
type kept[H any] struct {
	start   func(d time.Duration, f func()) H
	end     func(H)
	move    func(H, time.Duration) // nil if the subject has no Reset
	close   func()
	handles []H
}

func (k *kept[H]) keep(n int) { k.handles = make([]H, n) }

func (k *kept[H]) add(i int, d time.Duration, f func()) {
	h := k.start(d, f)
	if i < len(k.handles) {
		k.handles[i] = h
	}
}

func (k *kept[H]) cancel(i int) { k.end(k.handles[i]) }

func (k *kept[H]) reset(i int, d time.Duration, f func()) {
	if k.move != nil {
		k.move(k.handles[i], d)
		return
	}
	k.cancel(i)
	k.add(i, d, f)
}

func (k *kept[H]) stop() {
	k.close()
	k.close = noop
}

// standard is package time. Its timers belong to the whole process, so stop ends them
// one by one.
func standard() timers {
	k := &kept[*time.Timer]{
		start: time.AfterFunc,
		end:   func(t *time.Timer) { t.Stop() },
		move:  func(t *time.Timer, d time.Duration) { t.Reset(d) },
	}
	k.close = func() {
		for _, t := range k.handles {
			if t != nil {
				t.Stop()
			}
		}
	}
	return k
}

// wheel makes a wheel.
func (s setup) wheel(more ...timingwheel.Option) *timingwheel.TimingWheel {
	if s.tick > 0 {
		more = append(more, timingwheel.WithTick(s.tick))
	}
	if s.slots > 0 {
		more = append(more, timingwheel.WithWheelSize(s.slots))
	}
	return timingwheel.New(append(more, timingwheel.WithShards(s.shards))...)
}

func schedule(w *timingwheel.TimingWheel) timers {
	return &kept[timingwheel.Timeout]{
		start: func(d time.Duration, f func()) timingwheel.Timeout {
			t, err := w.Schedule(d, f)
			if err != nil {
				panic(err)
			}
			return t
		},
		end:   func(t timingwheel.Timeout) { t.Cancel() },
		move:  func(t timingwheel.Timeout, d time.Duration) { t.Reset(d) },
		close: func() { w.Stop() },
	}
}

// ofContexts makes contexts with a timeout, which run no function.
func ofContexts(with withTimeout, stop func()) timers {
	return &kept[context.CancelFunc]{
		start: func(d time.Duration, _ func()) context.CancelFunc {
			_, cancel := with(context.Background(), d)
			return cancel
		},
		end:   func(cancel context.CancelFunc) { cancel() },
		close: stop,
	}
}

// goStatement starts a goroutine for each function at once: nothing that calls a function on a
// goroutine of its own takes less.
type goStatement struct{ none }

func (goStatement) add(_ int, _ time.Duration, f func()) { go f() }

// byPointer is schedule with each Timeout in an object of its own, as in a struct of the user's.
func byPointer(w *timingwheel.TimingWheel) timers {
	return &kept[*timingwheel.Timeout]{
		start: func(d time.Duration, f func()) *timingwheel.Timeout {
			t, err := w.Schedule(d, f)
			if err != nil {
				panic(err)
			}
			return &t
		},
		end:   func(t *timingwheel.Timeout) { t.Cancel() },
		move:  func(t *timingwheel.Timeout, d time.Duration) { t.Reset(d) },
		close: func() { w.Stop() },
	}
}

// withTick makes subjects of schedule that differ in their tick, so that they can alternate.
func withTick(tick time.Duration) func(setup) timers {
	return func(s setup) timers {
		s.tick = tick
		return schedule(s.wheel())
	}
}

func afterFunc(w *timingwheel.TimingWheel) timers {
	return &kept[*timingwheel.Timer]{
		start: w.AfterFunc,
		end:   func(t *timingwheel.Timer) { t.Stop() },
		move:  func(t *timingwheel.Timer, d time.Duration) { t.Reset(d) },
		close: func() { w.Stop() },
	}
}

// keyed is a Keyed whose keys are the numbers of the timers.
type keyed struct {
	keys  *timingwheel.Keyed[int]
	wheel *timingwheel.TimingWheel
}

func (keyed) keep(int) {}

func (k keyed) add(i int, d time.Duration, f func()) {
	if _, err := k.keys.Schedule(i, d, f); err != nil {
		panic(err)
	}
}

func (k keyed) cancel(i int)                           { k.keys.Cancel(i) }
func (k keyed) reset(i int, d time.Duration, _ func()) { k.keys.Reset(i, d) }
func (k keyed) stop()                                  { k.wheel.Stop() }

// mapped is what a program writes for itself instead of a Keyed: a mutex, a map, and
// package time's timers.
type mapped struct {
	mu     sync.Mutex
	timers map[int]*time.Timer
}

func (*mapped) keep(int) {}

func (m *mapped) add(i int, d time.Duration, f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.timers[i]; old != nil {
		old.Stop()
	}
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		m.mu.Lock()
		mine := m.timers[i] == t
		if mine {
			delete(m.timers, i)
		}
		m.mu.Unlock()
		if mine {
			f()
		}
	})
	m.timers[i] = t
}

func (m *mapped) cancel(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.timers[i]; t != nil {
		t.Stop()
		delete(m.timers, i)
	}
}

func (m *mapped) reset(i int, d time.Duration, _ func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.timers[i]; t != nil {
		t.Reset(d)
	}
}

func (m *mapped) stop() {
	for i := range m.timers {
		m.cancel(i)
	}
}

// none starts no timers. What a benchmark measures of it is the load generator's own cost.
type none struct{}

func (none) keep(int)                         {}
func (none) add(int, time.Duration, func())   {}
func (none) cancel(int)                       {}
func (none) reset(int, time.Duration, func()) {}
func (none) stop()                            {}
