package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

var limits = []int{1, 2, 65, 300}

// One after the other, takes fail exactly if fewer places are free.
func TestLimitIsExact(t *testing.T) {
	for _, max := range limits {
		t.Run(fmt.Sprint(max), func(t *testing.T) {
			l, pending := newLimit(max), 0
			for range 20_000 {
				switch n := 1 + rand.IntN(max); rand.IntN(4) {
				case 0:
					require.Equal(t, pending+n <= max, l.take(int64(n)))
					if pending+n <= max {
						pending += n
					}
				case 1:
					require.Equal(t, pending < max, l.take(1))
					if pending < max {
						pending++
					}
				case 2:
					if rand.IntN(50) == 0 {
						l.force()
						pending++
					}
				default:
					for ; n > 0 && pending > 0; n-- {
						l.release()
						pending--
					}
				}
				require.EqualValues(t, pending, l.taken())
			}
		})
	}
}

// There are never more than max, whoever takes and gives back at the same time. After that,
// exactly max are accepted.
func TestLimitIsNeverExceeded(t *testing.T) {
	for _, max := range limits {
		t.Run(fmt.Sprint(max), func(t *testing.T) {
			l := newLimit(max)
			var held atomic.Int64
			var callers sync.WaitGroup
			for range 16 {
				callers.Go(func() {
					for range 10_000 {
						n := 1 + rand.Int64N(int64(max))
						if !l.take(n) {
							continue
						}
						if now := held.Add(n); now > int64(max) {
							t.Errorf("%d of %d", now, max)
						}
						if rand.IntN(8) == 0 {
							runtime.Gosched()
						}
						held.Add(-n)
						for range n {
							l.release()
						}
					}
				})
			}
			callers.Wait()
			require.Zero(t, l.taken())
			require.True(t, l.take(int64(max)))
			require.False(t, l.take(1))
		})
	}
}

// Two callers meet at the last place: exactly one gets it.
func TestLimitAtTheLastPlace(t *testing.T) {
	const rounds = 50_000
	all, arrived, taken := make([]*limit, rounds), make([]atomic.Int64, rounds), make([]atomic.Int64, rounds)
	for i := range all {
		all[i] = newLimit(1)
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			for i := range rounds {
				for arrived[i].Add(1); arrived[i].Load() < 2; {
					runtime.Gosched()
				}
				if all[i].take(1) {
					taken[i].Add(1)
				}
			}
		})
	}
	both.Wait()
	for i := range taken {
		require.EqualValues(t, 1, taken[i].Load())
	}
}

func TestLimitOfAllThatFits(t *testing.T) {
	l := newLimit(math.MaxInt)
	require.True(t, l.take(1))
	require.False(t, l.take(math.MaxInt))
	require.True(t, l.take(math.MaxInt-1))
	require.False(t, l.take(1))
	l.force()
	l.release()
	require.False(t, l.take(1))
	l.release()
	require.True(t, l.take(1))
}
