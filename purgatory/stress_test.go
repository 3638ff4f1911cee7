package purgatory

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// stress is a purgatory under random calls from many goroutines. It records the promises made to
// each operation.
type stress struct {
	t     *testing.T
	w     *timingwheel.TimingWheel
	p     *Purgatory[int]
	wild  bool // functions panic and end their goroutine
	end   atomic.Bool
	ready [stressKeys]atomic.Int64 // a number that rises, for each key

	accepted, refused, unknown, canceled atomic.Int64

	mu  sync.Mutex
	ops []*stressOp // of Park
}

const stressKeys = 12

type stressOp struct {
	*Op[int]
	done atomic.Int32 // calls
	got  atomic.Int32 // the outcome that done got
}

// wildly panics or ends the goroutine, now and then.
func (s *stress) wildly() {
	if !s.wild || s.end.Load() {
		return
	}
	switch rand.IntN(60) {
	case 0:
		panic("wild")
	case 1:
		runtime.Goexit()
	}
}

// step does one thing at random. It may panic, or end its goroutine.
func (s *stress) step(depth int) {
	key := rand.IntN(stressKeys)
	switch rand.IntN(13) {
	case 0, 1, 2, 3:
		s.park(key, depth)
	case 4:
		s.wait(key)
	case 5, 6, 7:
		s.ready[key].Add(1)
		s.p.Notify(key)
	case 8:
		s.canceled.Add(int64(s.p.CancelKey(key)))
	case 9:
		if o := s.any(); o != nil && o.Cancel() {
			s.canceled.Add(1)
		}
	case 10:
		if o := s.any(); o != nil {
			o.Check()
		}
	case 11:
		s.p.NotifyN(key, rand.IntN(3))
	case 12:
		s.p.Stats()
	}
}

func (s *stress) any() *Op[int] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ops) == 0 {
		return nil
	}
	return s.ops[rand.IntN(len(s.ops))].Op
}

// question returns a condition that never overlaps itself, and the keys that it is about.
func (s *stress) question(key int) (try func() bool, keys []int) {
	keys = append(keys, key)
	for rand.IntN(3) == 0 {
		keys = append(keys, rand.IntN(stressKeys))
	}
	if rand.IntN(6) == 0 {
		return nil, keys
	}
	want := s.ready[key].Load() + rand.Int64N(3)
	var asking atomic.Bool
	return func() bool {
		if !asking.CompareAndSwap(false, true) {
			s.t.Error("a try overlaps itself")
		}
		defer asking.Store(false)
		s.wildly()
		return s.ready[key].Load() >= want
	}, keys
}

func (s *stress) delay() time.Duration {
	if rand.IntN(3) == 0 {
		return time.Hour
	}
	return time.Duration(rand.IntN(5000)-100) * time.Microsecond
}

func (s *stress) park(key, depth int) {
	try, keys := s.question(key)
	o := &stressOp{}
	returned := false
	defer func() {
		if !returned {
			s.unknown.Add(1) // nobody knows; done may have been called, or not
		}
	}()
	op, err := s.p.Park(s.delay(), try, func(outcome Outcome) {
		if o.done.Add(1) > 1 {
			s.t.Error("done twice")
		}
		o.got.Store(int32(outcome))
		s.wildly()
		if depth < 3 && rand.IntN(2) == 0 {
			s.step(depth + 1)
		}
	}, keys...)
	returned = true
	if err != nil {
		s.refused.Add(1)
		if o.done.Load() > 0 {
			s.t.Error("done of what was refused")
		}
		return
	}
	s.accepted.Add(1)
	o.Op = op
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, o)
}

func (s *stress) wait(key int) {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Duration(rand.IntN(3000))*time.Microsecond)
	defer cancel()
	try, keys := s.question(key)
	s.p.Wait(ctx, s.delay(), try, keys...)
}

// run does steps in goroutines until finish, and then ends all by how, at the same time.
func (s *stress) run(last time.Duration, how func()) {
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for !s.end.Load() {
				s.guarded(func() { s.step(0) })
			}
		})
	}
	time.Sleep(last)
	how() // in the middle of it all
	s.end.Store(true)
	all.Wait()
}

// guarded survives a step that panics or ends its goroutine.
func (s *stress) guarded(step func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil && r != "wild" {
				panic(r)
			}
		}()
		step()
	}()
	<-done
}

func TestStress(t *testing.T) {
	var seen [5]int64
	for name, how := range map[string]func(s *stress){
		"close":    func(s *stress) { s.guarded(s.p.Close) },
		"stop":     func(s *stress) { s.w.Stop() },
		"both":     func(s *stress) { s.both() },
		"shutdown": func(s *stress) { s.shutdown() },
	} {
		for _, wild := range []bool{false, true} {
			for _, executor := range []timingwheel.Executor{timingwheel.Goroutines(), timingwheel.Inline()} {
				st := stressOnce(t, name, how, wild, executor)
				for i, n := range []int64{st.Satisfied, st.Immediate, st.Expired, st.Canceled, st.Closed} {
					seen[i] += n
				}
			}
		}
	}
	require.NotContains(t, seen, int64(0), "each outcome has been there")
}

// both returns when the Close has, too: until then it may have calls of done before it.
func (s *stress) both() {
	var closing sync.WaitGroup
	closing.Go(func() { s.guarded(s.p.Close) })
	s.w.Stop()
	closing.Wait()
}

// shutdown gives up on what has an hour.
func (s *stress) shutdown() {
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Millisecond)
	defer cancel()
	if s.w.Shutdown(ctx) != nil {
		s.w.Stop()
	}
}

func stressOnce(t *testing.T, name string, how func(s *stress), wild bool, executor timingwheel.Executor) Stats {
	goroutines := runtime.NumGoroutine()
	w := timingwheel.New(timingwheel.WithTick(100*time.Microsecond), timingwheel.WithExecutor(executor),
		timingwheel.WithPanicHandler(func(any, []byte) {}))
	s := &stress{t: t, w: w, p: New[int](w), wild: wild}
	within(t, func() {
		s.run(100*time.Millisecond, func() { how(s) })
		s.p.Close()
		w.Stop()
	})
	settled := func() bool {
		return s.p.Stats().Pending == 0 && w.Stats().Running == 0 && runtime.NumGoroutine() <= goroutines
	}
	for end := time.Now().Add(2 * time.Minute); !settled(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "%s: it does not settle: %+v, %d goroutines", name, s.p.Stats(), runtime.NumGoroutine())
	}
	st := s.p.verify(t)
	require.Zero(t, st.Pending, "%s: hangs: %+v", name, st)
	require.Zero(t, st.Keys)
	require.Zero(t, w.Len())
	for i, o := range s.ops {
		require.EqualValues(t, 1, o.done.Load(), "%s: operation %d, %v: calls of done", name, i, o.Outcome())
		require.EqualValues(t, o.Outcome(), o.got.Load())
	}
	if !wild {
		require.Zero(t, s.unknown.Load())
		require.GreaterOrEqual(t, st.Canceled, s.canceled.Load())
	}
	t.Logf("%s, wild %t: %+v, %d refused", name, wild, st, s.refused.Load())
	return st
}

// No event is lost: every operation waits for a number that comes, with its Notify.
func TestStressNoEventIsLost(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[int](w)
	const goroutines, rounds = 4, 3000
	var numbers [2]atomic.Int64
	within(t, func() {
		var all sync.WaitGroup
		for g := range goroutines {
			all.Go(func() {
				for i := range rounds {
					key := (g + i) % len(numbers)
					n := numbers[key].Load()
					reached := func() bool { return numbers[key].Load() > n }
					if i%2 == 0 {
						all.Go(func() { numbers[key].Add(1); p.Notify(key) })
						if err := p.Wait(t.Context(), time.Hour, reached, key); err != nil {
							t.Error(err)
						}
						continue
					}
					if _, err := p.Park(time.Hour, reached, nil, key, key+2); err != nil {
						t.Error(err)
					}
					numbers[key].Add(1)
					p.Notify(key + i%4/2*2) // the one key, or the other
				}
			})
		}
		all.Wait()
		for key := range numbers { // those of another goroutine that were visited under the other key
			p.Notify(key)
			p.Notify(key + 2)
		}
	})
	st := p.verify(t)
	require.Zero(t, st.Pending)
	require.EqualValues(t, goroutines*rounds, st.Satisfied)
}

// If several goroutines end an operation at the same time, one wins. Two go through the same
// operations, neck and neck.
func TestStressOneWins(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[int](w)
	const n = 5_000
	rounds := unlessShort(20, 6)
	var calls, wins atomic.Int64
	within(t, func() {
		for range rounds {
			ops := make([]*Op[int], n)
			for i := range ops {
				ops[i], _ = p.Park(time.Hour, nil, func(Outcome) { calls.Add(1) }, i%7)
			}
			var both sync.WaitGroup
			for _, end := range []func(*Op[int]) bool{(*Op[int]).Cancel, (*Op[int]).Check} {
				both.Go(func() {
					for _, o := range ops {
						if end(o) {
							wins.Add(1)
						}
					}
				})
			}
			both.Wait()
		}
	})
	require.EqualValues(t, rounds*n, calls.Load())
	require.EqualValues(t, rounds*n, wins.Load())
	p.verify(t)
}
