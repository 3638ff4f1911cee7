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

// sharesOf returns the shares of a limit, each for a goroutine or a shard of its own.
func sharesOf(l *limit, n int) []share {
	shares := make([]share, n)
	for i := range shares {
		shares[i].join(l)
	}
	return shares
}

// The limits are below and above what shards leave for everyone.
var limitCases = []struct{ max, shards int }{{1, 1}, {1, 4}, {2, 2}, {65, 1}, {65, 4}, {129, 2}, {300, 4}, {1000, 4}}

// One after the other, takes fail exactly if there are fewer places.
func TestLimitIsExact(t *testing.T) {
	for _, c := range limitCases {
		t.Run(fmt.Sprintf("%d places, %d shards", c.max, c.shards), func(t *testing.T) {
			l := newLimit(c.max, c.shards)
			shares, pending := sharesOf(l, c.shards), 0
			for range 100_000 {
				s := &shares[rand.IntN(c.shards)]
				switch op := rand.IntN(100); {
				case op < 45+rand.IntN(10): // so it goes up and down
					require.Equal(t, pending < c.max, s.take(1))
					pending = max(pending, min(pending+1, c.max))
				case op < 55:
					n := 1 + rand.IntN(c.max)
					fits := pending+n <= c.max
					require.Equal(t, fits, s.take(int64(n)))
					if fits {
						pending += n
					}
				case op < 56:
					s.force()
					pending++
				case pending > 0:
					n := 1
					if op > 97 {
						n = rand.IntN(pending)
					}
					for range n {
						s.release()
						pending--
					}
				}
				require.EqualValues(t, pending, l.taken())
			}
		})
	}
}

// A take looks for the last place that another shard has to spare.
func TestLimitFindsTheLastSparePlace(t *testing.T) {
	l := newLimit(2*lot+1, 2)
	shares := sharesOf(l, 2)
	for range lot - 1 { // of the lot that the first take makes spare
		require.True(t, shares[0].take(1))
	}
	require.EqualValues(t, 1, shares[0].spare.Load())
	for range lot + 2 {
		require.True(t, shares[1].take(1))
	}
	require.False(t, shares[1].take(1))
	require.EqualValues(t, none, l.lent.Load(), "the next take that fails would look for spare places again")
}

// There are never more than max, whoever takes and gives back at the same time. After that,
// when there is nobody else, exactly max are accepted.
func TestLimitIsNeverExceeded(t *testing.T) {
	for _, c := range limitCases {
		t.Run(fmt.Sprintf("%d places, %d shards", c.max, c.shards), func(t *testing.T) {
			l := newLimit(c.max, c.shards)
			shares, locks := sharesOf(l, c.shards), make([]sync.Mutex, c.shards)
			var held atomic.Int64
			var callers sync.WaitGroup
			for range 16 {
				callers.Go(func() {
					mine := 0
					for n := range 20_000 {
						i := rand.IntN(c.shards)
						locks[i].Lock()
						if want := 1 + rand.IntN(1+rand.IntN(c.max)); rand.IntN(16) > 0 && shares[i].take(1) {
							mine++
							held.Add(1)
						} else if rand.IntN(4) == 0 && shares[i].take(int64(want)) {
							mine += want
							held.Add(int64(want))
						}
						if now := held.Load(); now > int64(c.max) {
							t.Errorf("%d of %d", now, c.max)
						}
						for left := rand.IntN(mine + 1); n%4 == 0 && mine > left; mine-- {
							held.Add(-1)
							shares[i].release()
						}
						locks[i].Unlock()
					}
					locks[0].Lock()
					defer locks[0].Unlock()
					for ; mine > 0; mine-- {
						held.Add(-1)
						shares[0].release()
					}
				})
			}
			callers.Wait()
			require.Zero(t, l.taken())
			n := 0
			for ; n <= c.max && shares[n%c.shards].take(1); n++ {
			}
			require.Equal(t, c.max, n)
		})
	}
}

// No place is lost or doubled while one shard takes and gives back, by its lots, and another
// sweeps all the time.
func TestLimitSweepsWhilePlacesMove(t *testing.T) {
	needsProcessors(t)
	const most = 3 * lot
	l := newLimit(1000, 2)
	shares := sharesOf(l, 2)
	var end atomic.Bool
	var sweeper sync.WaitGroup
	sweeper.Go(func() {
		for !end.Load() {
			if shares[1].take(1001) {
				t.Error("more than there are")
			}
		}
	})
	for range 10_000 {
		for n := range most {
			require.True(t, shares[0].take(1), "%d of 1000 are taken", n)
		}
		for range most {
			shares[0].release()
		}
	}
	end.Store(true)
	sweeper.Wait()
	require.Zero(t, l.taken())
}

// Two callers on two shards meet at the last place: exactly one gets it.
func TestLimitAtTheLastPlace(t *testing.T) {
	const rounds = 50_000
	limits, arrived, taken := make([]*limit, rounds), make([]atomic.Int64, rounds), make([]atomic.Int64, rounds)
	shares := make([][]share, rounds)
	for i := range limits {
		limits[i] = newLimit(1, 2)
		shares[i] = sharesOf(limits[i], 2)
	}
	var both sync.WaitGroup
	for caller := range 2 {
		both.Go(func() {
			for i := range rounds {
				for arrived[i].Add(1); arrived[i].Load() < 2; {
					runtime.Gosched()
				}
				if shares[i][caller].take(1) {
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
	l := newLimit(math.MaxInt, 2)
	shares := sharesOf(l, 2)
	require.True(t, shares[0].take(1))
	require.False(t, shares[1].take(math.MaxInt))
	require.True(t, shares[1].take(math.MaxInt-1))
	require.False(t, shares[0].take(1))
	shares[0].force()
	shares[0].release()
	require.False(t, shares[1].take(1))
	shares[0].release()
	require.True(t, shares[1].take(1))
}
