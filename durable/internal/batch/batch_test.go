package batch

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const enough = 16

// The first of a batch waits for others, but no longer than it was told, and not if enough
// have come.
func TestBatcherLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var batches [][]int
		flushed := func() [][]int {
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
		time.Sleep(time.Second / 2)
		b.Put(2)
		synctest.Wait()
		require.Empty(t, flushed())
		time.Sleep(time.Second / 2)
		synctest.Wait()
		require.Equal(t, [][]int{{1, 2}}, flushed())

		b.Put(make([]int, enough-1)...)
		synctest.Wait()
		require.Len(t, flushed(), 1)
		b.Put(0)
		synctest.Wait()
		require.Len(t, flushed(), 2)
		require.Len(t, flushed()[1], enough)

		b.Put(3)
		b.Close()
		require.Equal(t, []int{3}, flushed()[2], "what was accepted is flushed")
		require.False(t, b.Put(4))
	})
}

// What comes while a batch is on its way lingers too.
func TestBatcherLingersBehindAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flushed [][]int
		b := New(func(items []int) {
			time.Sleep(time.Second)
			flushed = append(flushed, items)
		}, time.Second, enough)
		b.Put(make([]int, enough)...)
		time.Sleep(time.Second / 2)
		b.Put(1)
		time.Sleep(3 * time.Second / 4) // the first batch is over
		b.Put(2)
		b.Close()
		require.Len(t, flushed, 2)
		require.Equal(t, []int{1, 2}, flushed[1])
	})
}
