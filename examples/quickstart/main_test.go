package main

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var out bytes.Buffer
		require.NoError(t, remind(t.Context(), sample, &out))
		require.Equal(t, `start the day  (0s late)
boil the kettle  (0s late)
feed the cat  (0s late)
water the plants  (0s late)
buy milk  (0s late)
`, out.String())
		require.Equal(t, 1500*time.Millisecond, time.Since(start))
	})
}

func TestBadLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		err := remind(t.Context(), "1s good\nsoon bad\n\n  # nothing here\n5 no unit\n2s\r\n2s # no message\n3s   twice # a comment", &out)
		require.EqualError(t, err, `line 2: time: invalid duration "soon"
line 5: time: missing unit in duration "5"
line 6: no message after the delay
line 7: no message after the delay`)
		require.Equal(t, "good  (0s late)\ntwice  (0s late)\n", out.String())
	})
}

func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		var out bytes.Buffer
		require.ErrorIs(t, remind(ctx, "3s third\n1s first\n2s second", &out), context.DeadlineExceeded)
		require.Equal(t, "first  (0s late)\ninterrupted: 2 have not run\n", out.String())
	})
}
