package table

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestShort(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "999ns": 999, "1.23ms": 1_234_567, "12.3ms": 12_345_678, "-1.23ms": -1_234_567, "1m40s": 100_000_000_123, "1s": 999_999_999,
	} {
		require.Equal(t, want, Short(d).String())
	}
}

func TestRow(t *testing.T) {
	var out strings.Builder
	Heading(&out)
	times := []time.Duration{3 * time.Second, time.Millisecond, 2 * time.Millisecond}
	Row(&out, "late", times)
	Row(&out, "early", nil)
	require.Equal(t, `
                                     min       p50       p99       max
late                                 1ms       2ms        3s        3s
early                               none
`, out.String())
}
