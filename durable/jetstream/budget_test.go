package jetstream

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// What is free goes to the oldest bucket first, in whichever order its readers came, and a
// reader that has gone keeps none from it.
func TestBudgetOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(2)
		require.True(t, b.take(t.Context(), 2, 0))
		turns, got := []int64{7, 3, 9, 1, 5, 8, 2, 6, 4}, make(chan int64)
		gone, leave := context.WithCancel(t.Context())
		left := make(chan bool)
		go func() { left <- b.take(gone, 2, 0) }()
		for _, turn := range turns {
			go func() {
				require.True(t, b.take(t.Context(), 2, turn))
				got <- turn
			}()
			synctest.Wait()
		}
		leave()
		require.False(t, <-left)
		var order []int64
		for range turns {
			b.give(2)
			synctest.Wait()
			order = append(order, <-got)
		}
		require.True(t, slices.IsSorted(order), "%v", order)
	})
}

// Many that fit together need one look at what is free, also when the last to come is first.
func TestBudgetTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, got := newBudget(3), make(chan bool, 3)
		require.True(t, b.take(t.Context(), 3, 0))
		for _, turn := range []int64{3, 2, 1} {
			go func() { got <- b.take(t.Context(), 1, turn) }()
			synctest.Wait()
		}
		b.give(3)
		for range 3 {
			require.True(t, <-got)
		}
	})
}
