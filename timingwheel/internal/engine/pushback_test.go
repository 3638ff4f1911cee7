package engine

import (
	"runtime"
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
	_, ok := l.giveBackIf(5000)
	require.False(t, ok, "it was pushed back")
	deadline, kept := l.deadline()
	require.True(t, kept)
	require.EqualValues(t, 10_000, deadline)
	pushes, ok := l.giveBackIf(10_000)
	require.True(t, ok)
	require.EqualValues(t, 2, pushes)
	require.False(t, l.PushBack(&c, in(time.Hour)))
	l.keep(1000) // the tick that it is now
	require.False(t, l.PushBack(&c, in(0)), "now, without rounding")
	require.True(t, l.PushBack(&c, in(1)))
	_, _, kept = l.giveBack()
	require.True(t, kept)
	_, _, kept = l.giveBack()
	require.False(t, kept)
}

// No push is lost when another goroutine takes the deadline back at that moment: each that was true
// counts once.
func TestPushesBesideTheirEnd(t *testing.T) {
	c := newClock(time.Millisecond, time.Now(), false)
	for name, end := range map[string]func(l *LazyTask) (pushes int64, ended bool){
		"GiveBack": func(l *LazyTask) (int64, bool) {
			_, pushes, _ := l.giveBack()
			return pushes, true
		},
		"Fall": func(l *LazyTask) (int64, bool) {
			deadline, _ := l.deadline()
			pushes, ok := l.giveBackIf(deadline)
			if !ok {
				return 0, false
			}
			return pushes, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &LazyTask{F: noop}
			var stop atomic.Bool
			var pushed int64
			var all sync.WaitGroup
			all.Go(func() {
				for !stop.Load() {
					if l.PushBack(&c, Delay{D: time.Hour}) {
						pushed++
					}
				}
			})
			counted := int64(0)
			for deadline := time.Now().Add(50 * time.Millisecond); time.Now().Before(deadline); {
				l.keep(1)
				for l.Word.Load()&mostPushes == 0 { // until the other is pushing
					runtime.Gosched()
				}
				for ended := false; !ended; {
					var n int64
					n, ended = end(l)
					counted += n
				}
			}
			stop.Store(true)
			all.Wait()
			require.Equal(t, pushed, counted)
		})
	}
}
