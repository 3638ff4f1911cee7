package postgres

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// However many places there are to be told of, and whatever their lanes are, each notification is
// one that the server takes, and all are told of.
func TestLongNotices(t *testing.T) {
	for _, text := range []string{"<", "\"", "\\", "é"} {
		n := newNotices()
		for i := range int64(200) {
			n.freed[driver.LimitKey{Limit: 1<<62 + i, Lane: strings.Repeat(text, driver.MaxLane/len(text))}] = true
		}
		told := map[driver.LimitKey]bool{}
		for len(n.freed) > 0 {
			message := n.take()
			require.LessOrEqual(t, len(message), maxNews, text)
			notice, ok := decodeNotice(message)
			require.True(t, ok)
			for _, p := range notice.Freed {
				told[p] = true
			}
		}
		require.Len(t, told, 200, text)
	}
}
