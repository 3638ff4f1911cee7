package postgres

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// However many permits were freed, and whatever their lanes are, each notification fits the
// server, and all permits are in one of them.
func TestLongNotices(t *testing.T) {
	for _, text := range []string{"<", "\"", "\\", "é"} {
		n := newNotices(nil)
		for i := range int64(200) {
			n.freed[driver.LimitKey{Limit: 1<<62 + i, Lane: strings.Repeat(text, driver.MaxLane/len(text))}] = true
		}
		seen := map[driver.LimitKey]bool{}
		for len(n.freed) > 0 {
			message := n.take()
			require.LessOrEqual(t, len(message), maxNotification, text)
			notice, ok := decodeNotice(message)
			require.True(t, ok)
			for _, p := range notice.Freed {
				seen[p] = true
			}
		}
		require.Len(t, seen, 200, text)
	}
}
