package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A Ref is read as it was written. One whose sum is right, but that cannot be, is of no
// job.
func TestRef(t *testing.T) {
	q := refs{}
	id := idOf(&driver.Record{ID: "ABC-1_z", Born: time.UnixMicro(7)})
	got, err := q.parse(q.refOf(id))
	require.NoError(t, err)
	require.Equal(t, id, got)
	for _, bad := range []string{"*", "a b", "a%", "a\x00b", "a\nb", "ä", "a'b", strings.Repeat("a", maxID+1), strings.Repeat("a", 1<<20)} {
		_, err := q.parse(q.refOf(bad))
		require.ErrorIs(t, err, driver.ErrNotFound, "%.100q", bad)
		require.Less(t, len(err.Error()), 1500)
	}
	_, err = q.parse("")
	require.ErrorIs(t, err, driver.ErrNotFound)
}
