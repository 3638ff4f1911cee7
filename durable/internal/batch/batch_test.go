package batch

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const enough = 16

// An item that comes alone waits for nobody. Those that come within a linger after it wait for each other,
// but not if enough have come.
func TestBatcherLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var batches [][]int
		flushed := func() [][]int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return batches
		}
		b := New(func(items []int) {
			mu.Lock()
			defer mu.Unlock()
			batches = append(batches, items)
		}, time.Second, enough)
		b.Put(1)
		require.Equal(t, [][]int{{1}}, flushed())
		time.Sleep(time.Second / 4)
		b.Put(2)
		time.Sleep(time.Second / 2)
		b.Put(3)
		require.Len(t, flushed(), 1)
		time.Sleep(time.Second / 4)
		require.Equal(t, [][]int{{1}, {2, 3}}, flushed())

		b.Put(make([]int, enough-1)...)
		require.Len(t, flushed(), 2)
		time.Sleep(time.Second / 4)
		b.Put(0)
		require.Len(t, flushed(), 3)
		require.Len(t, flushed()[2], enough)

		b.Put(4)
		time.Sleep(time.Second - 1)
		require.Len(t, flushed(), 3, "the pause before the last batch is not that before the next")
		b.Hurry()
		require.Equal(t, []int{4}, flushed()[3])
		time.Sleep(time.Hour)
		b.Put(5)
		require.Equal(t, []int{5}, flushed()[4])

		b.Put(6)
		b.Put()
		began := time.Now()
		b.Close()
		require.Equal(t, []int{6}, flushed()[5], "what was accepted is flushed")
		require.Zero(t, time.Since(began))
		require.False(t, b.Put(7))
	})
}

// What comes while a batch is on its way lingers too.
func TestBatcherLingersBehindAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flushed [][]int
		b := New(func(items []int) {
			time.Sleep(3 * time.Second / 4)
			flushed = append(flushed, items)
		}, time.Second, enough)
		b.Put(0)
		time.Sleep(time.Second / 2)
		b.Put(1)
		time.Sleep(time.Second / 4)
		synctest.Wait()
		require.Len(t, flushed, 1) // and 1 still waits
		b.Put(2)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, [][]int{{0}, {1, 2}}, flushed)
		b.Close()
	})
}

// Two batches are on their way at once, and four while the next one is full: it would gain nothing by waiting.
func TestFullBatchesWaitForFewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sizes []int
		end := make(chan struct{})
		b := New(func(items []int) {
			mu.Lock()
			sizes = append(sizes, len(items))
			mu.Unlock()
			<-end
		}, 0, 1)
		flying := func() []int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return sizes
		}
		for range 2 {
			b.Put(1)
			flying()
		}
		b.Put(make([]int, Max-1)...)
		require.Equal(t, []int{1, 1}, flying())
		b.Put(1)
		require.Equal(t, []int{1, 1, Max}, flying())
		b.Put(make([]int, Max)...)
		b.Put(make([]int, Max)...)
		require.Equal(t, []int{1, 1, Max, Max}, flying())
		for range 2 {
			end <- struct{}{}
		}
		require.Equal(t, []int{1, 1, Max, Max, Max}, flying(), "two have ended, and three are at work")
		b.Put(1)
		end <- struct{}{}
		end <- struct{}{}
		require.Equal(t, []int{1, 1, Max, Max, Max, 1}, flying())
		close(end)
		b.Close()
	})
}
