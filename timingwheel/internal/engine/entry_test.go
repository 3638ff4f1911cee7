package engine

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLazyTask(t *testing.T) {
	c := newClock(time.Millisecond, time.Now(), false)
	in := func(d time.Duration) Delay { return Delay{Now: time.Second, D: d} }
	l := &LazyTask{F: noop}
	require.Same(t, l, lazyOf(Disguise(l)))
	require.False(t, l.PushBack(&c, in(time.Second)), "the entry has the deadline")
	l.keep(5000)
	require.False(t, l.PushBack(&c, in(3999*time.Millisecond)), "an earlier time")
	require.True(t, l.PushBack(&c, in(4*time.Second)), "the same")
	require.True(t, l.PushBack(&c, in(9*time.Second)))
	require.False(t, l.PushBack(&c, in(0)))
	require.False(t, l.PushBack(&c, in(-1)))
	read := l.Word.Load()
	require.EqualValues(t, 10_000, deadlineOf(read))
	require.EqualValues(t, 2, pushesOf(read))
	require.True(t, l.PushBack(&c, in(9*time.Second)), "the same")
	require.False(t, l.giveBackIf(read), "it was pushed back since")
	deadline, kept := l.deadline()
	require.True(t, kept)
	require.EqualValues(t, 10_000, deadline)
	require.True(t, l.giveBackIf(l.Word.Load()))
	_, kept = l.deadline()
	require.False(t, kept)
	require.False(t, l.PushBack(&c, in(time.Hour)))
	l.keep(1000) // the tick that it is now
	require.False(t, l.PushBack(&c, in(0)), "now, without rounding")
	require.True(t, l.PushBack(&c, in(1)))
	_, _, kept = l.giveBack()
	require.True(t, kept)
	_, _, kept = l.giveBack()
	require.False(t, kept)
}

// The longest deadline in the shortest ticks fits into the word.
func TestLazyTaskAtTheEndOfTheClock(t *testing.T) {
	c := newClock(time.Microsecond, time.Now(), false)
	l := &LazyTask{F: noop}
	l.keep(1)
	for range 3 {
		require.True(t, l.PushBack(&c, Delay{Now: time.Hour, D: math.MaxInt64}))
	}
	deadline, pushes, kept := l.giveBack()
	require.True(t, kept)
	require.Equal(t, c.deadline(0, math.MaxInt64), deadline)
	require.EqualValues(t, 3, pushes)
}

// Whoever pushes back and whoever takes the deadline back may all meet: each push that was true
// counts once.
func TestPushesBesideEachOther(t *testing.T) {
	needsProcessors(t)
	c := newClock(time.Millisecond, time.Now(), false)
	for name, end := range map[string]func(l *LazyTask) (pushes int64){
		"giveBack": func(l *LazyTask) int64 {
			_, pushes, _ := l.giveBack()
			return pushes
		},
		"giveBackIf": func(l *LazyTask) int64 {
			if read := l.Word.Load(); l.giveBackIf(read) {
				return pushesOf(read)
			}
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &LazyTask{F: noop}
			var stop atomic.Bool
			var uncounted atomic.Int64
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					var n int64
					for i := 0; !stop.Load(); i++ {
						if i%2 == 0 {
							n -= end(l)
							l.Word.CompareAndSwap(0, 1<<pushBits) // keep
						}
						if l.PushBack(&c, Delay{D: 1}) {
							n++
						}
					}
					uncounted.Add(n)
				})
			}
			time.Sleep(time.Duration(unlessShort(200, 50)) * time.Millisecond)
			stop.Store(true)
			all.Wait()
			require.Equal(t, pushesOf(l.Word.Load()), uncounted.Load())
		})
	}
}

// A flush takes the deadline back only if it was not pushed back since the flush has read it.
func TestPushesBesideAFlush(t *testing.T) {
	needsProcessors(t)
	w := virtual()
	defer w.Stop()
	w.Schedule(time.Millisecond, noop)
	w.Advance(time.Millisecond) // so that tick 1 is due
	s, l := &w.shards[0], &LazyTask{F: noop}
	h := addFunction(s, time.Hour, noop)
	s.lock()
	defer s.unlock()
	s.makeLazy(h.index, l)
	defer l.keep(s.arena.Deadline(h.index))
	var stop atomic.Bool
	var pushed atomic.Int64
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for !stop.Load() {
				if l.PushBack(s.clock, Delay{D: 1}) {
					pushed.Add(1)
				}
			}
		})
	}
	before, nothingDue := s.counts.Reset, new(cascade)
	for end := time.Now().Add(time.Duration(unlessShort(200, 50)) * time.Millisecond); time.Now().Before(end); {
		for range 1000 { // so that the test spends most of its time in isLazyDue
			l.keep(1)
			if deadline, due := s.isLazyDue(h.index, nothingDue); !due || deadline != 1 {
				t.Fatalf("deadline %d, due %t", deadline, due)
			}
		}
	}
	stop.Store(true)
	all.Wait()
	require.Equal(t, pushed.Load(), s.counts.Reset-before)
}
