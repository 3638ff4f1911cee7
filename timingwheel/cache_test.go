package timingwheel_test

import (
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// The cache of the example sets a value anew while the expiry of the old one has started,
// and waits for the cache's lock. (Now and then the expiry gets it first.)
func TestCacheKeepsWhatIsSetAnew(t *testing.T) {
	for range 100 {
		var queue []func()
		w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(
			timingwheel.ExecutorFunc(func(task func()) { queue = append(queue, task) })))
		c := newCache(w)
		require.NoError(t, c.set("key", "old", 0))
		require.Equal(t, 1, w.Drive(0))
		c.mu.Lock()
		ended := make(chan struct{})
		go func() {
			queue[0]()
			close(ended)
		}()
		for c.expiry.Len() > 0 { // until the expiry has started
			runtime.Gosched()
		}
		c.mu.Unlock()
		require.NoError(t, c.set("key", "new", time.Hour))
		<-ended
		value, ok := c.get("key")
		require.True(t, ok, "the old value's expiry has deleted the new one")
		require.Equal(t, "new", value)
		require.Len(t, w.Stop(), 1)
	}
}

// Values expire at about the time at which they are set anew.
func TestCacheStress(t *testing.T) {
	const writers, keys = 4, 500
	w := timingwheel.New(timingwheel.WithTick(10 * time.Microsecond))
	defer w.Stop()
	c := newCache(w)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := range keys {
				key := strconv.Itoa(i*keys + n)
				for range 4 {
					c.set(key, "short", 20*time.Microsecond)
					runtime.Gosched()
				}
				c.set(key, "long", time.Hour)
			}
		})
	}
	wg.Wait()
	for w.Stats().Running > 0 {
		time.Sleep(time.Millisecond)
	}
	for n := range writers * keys {
		value, _ := c.get(strconv.Itoa(n))
		require.Equal(t, "long", value)
	}
	require.Equal(t, writers*keys, w.Len())
}
