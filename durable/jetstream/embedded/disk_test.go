package embedded

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A disk with plenty of room is asked now and then, and one with little each time.
func TestDiskWithRoomIsAskedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, bytes := 0, int64(plenty+1)
		d := newDisk("", func(string) (int64, error) { asked++; return bytes, nil }, slog.Default())
		for range 3 {
			n, err := d.free()
			require.NoError(t, err)
			require.EqualValues(t, plenty+1-reserve, n)
		}
		require.Equal(t, 1, asked)
		bytes = plenty
		time.Sleep(askEvery)
		for range 3 {
			_, err := d.free()
			require.NoError(t, err)
		}
		require.Equal(t, 4, asked)
	})
}
