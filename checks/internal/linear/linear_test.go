package linear

import (
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// counter has the numbers that were added to it, in any order: a history of n at once that
// does not fit takes 2^n steps at the least.
var counter = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, in, out any) (bool, any) {
		sum := state.(int) + in.(int)
		return in.(int) > 0 || sum == out.(int), sum
	},
}

func sums(n, want int) (history []porcupine.Operation) {
	for i := range n {
		history = append(history, porcupine.Operation{ClientId: i, Input: 1 << i, Call: 0, Return: 100})
	}
	return append(history, porcupine.Operation{ClientId: n, Input: 0, Output: want, Call: 101, Return: 102})
}

func TestChecker(t *testing.T) {
	var c Checker
	require.True(t, c.Check(counter, sums(8, 255)))
	require.False(t, c.Check(counter, sums(8, 256)))
	require.Equal(t, 2, c.decided)
	require.True(t, c.Check(counter, sums(30, 0)), "nobody knows")
	require.Equal(t, Checker{2, 1, c.longest}, c)
	c.Report(t)
}
