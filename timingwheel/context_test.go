package timingwheel

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
)

// The tests in this file play one of two goroutines that end a context at the same time:
// they leave it as it is between two steps of the other.

// asDeadlineCtx makes a context whose Done was called.
func asDeadlineCtx(w *TimingWheel, parent context.Context) *deadlineCtx {
	ctx, _ := w.WithTimeout(parent, time.Hour)
	ctx.Done()
	return ctx.(*deadlineCtx)
}

// A goroutine has set the outcome, and is about to close the channel: whoever hears of
// the outcome finds the channel closed.
func TestOutcomeBeforeDoneIsClosed(t *testing.T) {
	for name, hear := range map[string]func(c *deadlineCtx){
		"Err":  func(c *deadlineCtx) { _ = c.Err() },
		"Done": func(c *deadlineCtx) { c.Done() },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := New()
			defer w.Stop()
			for _, parent := range []context.Context{context.Background(), t.Context()} {
				c := asDeadlineCtx(w, parent)
				c.outcome.Store(canceled)
				var heard atomic.Bool
				go func() { hear(c); heard.Store(true) }()
				synctest.Wait()
				require.False(t, heard.Load(), name)
				c.finish()
				synctest.Wait()
				require.True(t, heard.Load(), name)
			}
		})
	}
}

// A goroutine is closing the channel: a second CancelFunc returns once it is closed.
func TestSecondCancelWaitsForDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New()
		defer w.Stop()
		c := asDeadlineCtx(w, context.Background())
		c.outcome.Store(canceled)
		c.state.Or(closing)
		var returned atomic.Bool
		go func() { c.finish(); returned.Store(true) }()
		synctest.Wait()
		require.False(t, returned.Load())
		close(c.inner.(chan struct{}))
		c.state.Or(closed)
		synctest.Wait()
		require.True(t, returned.Load())
	})
}

// slowErr passes the method AfterFunc on, and its Err takes a while: package context
// calls it when it ends a context that it has derived.
type slowErr struct {
	*deadlineCtx
	asked chan bool
}

func (s slowErr) Err() error {
	select {
	case s.asked <- true: // by the first call
	default:
	}
	for range 1000 {
		runtime.Gosched()
	}
	return s.deadlineCtx.Err()
}

// A second CancelFunc returns once all that package context has derived has ended.
func TestSecondCancelWaitsForTheDerived(t *testing.T) {
	w := New()
	defer w.Stop()
	for _, parent := range []context.Context{context.Background(), t.Context()} {
		for n := range 4 { // in the context itself, and in the ring
			c := asDeadlineCtx(w, parent)
			var all []context.Context
			slow := slowErr{c, make(chan bool, 1)}
			for range n + 1 {
				child, cancel := context.WithCancel(slow)
				defer cancel()
				all = append(all, child)
			}
			go c.finish()
			<-slow.asked
			c.finish()
			for _, child := range all {
				require.Error(t, child.Err())
			}
		}
	}
}

// A stopped AfterFunc does not keep its function, even if the program keeps the stop
// function and the context.
func TestStoppedKeepsNothing(t *testing.T) {
	w := New()
	defer w.Stop()
	c := asDeadlineCtx(w, t.Context())
	stops, kept := [4]func() bool{}, [4]weak.Pointer[[1024]byte]{}
	for i := range stops {
		payload := new([1024]byte)
		stops[i] = c.AfterFunc(func() { payload[0]++ })
		kept[i] = weak.Make(payload)
	}
	for _, stop := range stops {
		require.True(t, stop())
		require.False(t, stop())
	}
	last := stops[3]
	clear(stops[:])
	waitForGarbage(t, func() bool {
		return !slices.ContainsFunc(kept[:], func(p weak.Pointer[[1024]byte]) bool { return p.Value() != nil })
	})
	runtime.KeepAlive(last)
	runtime.KeepAlive(c)
}
