package timingwheel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// The times of a profile do not overflow.
func TestScaledTimesSaturate(t *testing.T) {
	values := scaled(1<<20, engine.Origin{Pending: 3, Remaining: 1e300, Waited: 2})
	require.EqualValues(t, 3<<20, values[0])
	require.Positive(t, values[1])
	require.GreaterOrEqual(t, values[1], int64(math.MaxInt64/2))
	require.EqualValues(t, 2000<<20, values[2])
}
