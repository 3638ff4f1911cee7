package durable

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInterval(t *testing.T) {
	for ahead, want := range map[time.Duration]time.Duration{
		minClaimAhead:          25 * time.Millisecond,
		99 * time.Millisecond:  25 * time.Millisecond,
		100 * time.Millisecond: 50 * time.Millisecond,
		maxClaimAhead:          100 * time.Millisecond,
	} {
		w := &worker{ahead: ahead}
		require.Equal(t, want, w.interval(), ahead)
	}
}

// Jobs that are due one after the other are claimed together, each of them between the
// whole lead and half of it ahead.
func TestJobsAreClaimedInRounds(t *testing.T) {
	for _, ahead := range []time.Duration{minClaimAhead, 130 * time.Millisecond, maxClaimAhead} {
		synctest.Test(t, func(t *testing.T) {
			w, first, _ := woken(t, &answering{beats: []error{nil}}, time.Now())
			w.ahead = ahead
			const jobs = 500
			from := time.Now().Add(time.Second)
			for i := range jobs {
				h := *first
				h.Ref, h.Record.Due = Ref(fmt.Sprint(i)), from.Add(time.Duration(i)*time.Millisecond)
				require.True(t, w.admit(t.Context(), &h))
			}
			rounds, taken := 0, 0
			for taken < jobs {
				time.Sleep(time.Millisecond)
				synctest.Wait()
				batch := w.takeClaimable()
				for _, task := range batch {
					lead := time.Until(task.held.Record.Due)
					require.LessOrEqual(t, lead, ahead)
					require.GreaterOrEqual(t, lead, ahead/2-2*time.Millisecond) // of ticks, of the wheel and here
					delete(w.tasks, task.held.Ref)                              // it is not claimed here
				}
				if len(batch) > 0 {
					rounds, taken = rounds+1, taken+len(batch)
				}
			}
			require.LessOrEqual(t, rounds, int(jobs*time.Millisecond/w.interval())+2)
			require.Empty(t, w.rounds)
		})
	}
}

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
		b := newBatcher(func(items []int) {
			mu.Lock()
			defer mu.Unlock()
			batches = append(batches, items)
		}, time.Second)
		b.put(1)
		time.Sleep(time.Second / 2)
		b.put(2)
		synctest.Wait()
		require.Empty(t, flushed())
		time.Sleep(time.Second / 2)
		synctest.Wait()
		require.Equal(t, [][]int{{1, 2}}, flushed())

		b.put(make([]int, enough-1)...)
		synctest.Wait()
		require.Len(t, flushed(), 1)
		b.put(0)
		synctest.Wait()
		require.Len(t, flushed(), 2)
		require.Len(t, flushed()[1], enough)

		b.put(3)
		b.close()
		require.Equal(t, []int{3}, flushed()[2], "what was accepted is flushed")
		require.False(t, b.put(4))
	})
}

// What comes while a batch is on its way lingers too.
func TestBatcherLingersBehindAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flushed [][]int
		b := newBatcher(func(items []int) {
			time.Sleep(time.Second)
			flushed = append(flushed, items)
		}, time.Second)
		b.put(make([]int, enough)...)
		time.Sleep(time.Second / 2)
		b.put(1)
		time.Sleep(3 * time.Second / 4) // the first batch is over
		b.put(2)
		b.close()
		require.Len(t, flushed, 2)
		require.Equal(t, []int{1, 2}, flushed[1])
	})
}
