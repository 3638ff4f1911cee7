package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A short run. That it was one of all things, its totals show.
func TestSoak(t *testing.T) {
	d := 4 * time.Second
	if testing.Short() {
		d = time.Second
	}
	var out strings.Builder
	s := newSoak(&out)
	s.run(d)
	ok := s.report()
	t.Log(out.String())
	require.True(t, ok)
	for name, n := range map[string]int64{
		"ran": s.ran.Load(), "cancelled": s.cancelled.Load(), "handed back": s.handedBack.Load(),
		"runs": s.runs.Load(), "futures": s.futures.Load(), "contexts": s.contexts.Load(),
		"timers": s.timers.Load(), "ticks": s.ticks.Load(), "reset": s.counts.Reset,
	} {
		require.Positive(t, n, name)
	}
}
