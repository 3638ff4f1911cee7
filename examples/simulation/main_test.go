package main

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// simulate runs the program, which must succeed, and returns its output without the figures
// of real time.
func simulate(t *testing.T, ofSeed uint64) string {
	t.Helper()
	*seed = ofSeed
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	return regexp.MustCompile(`took .*`).ReplaceAllString(out.String(), "")
}

func TestDay(t *testing.T) {
	keep(t, users)
	keep(t, idle)
	keep(t, last)
	*users = 500
	day := simulate(t, 1)
	require.Equal(t, 24, strings.Count(day, "h  ")-strings.Count(day, "0h0m0s  "), "a line an hour:\n%s", day)
	require.Contains(t, day, "24h0m0s of virtual time")
	require.Equal(t, day, simulate(t, 1), "the same seed")
	require.NotEqual(t, day, simulate(t, 2))

	// With a limit this short nearly every click needs a login.
	*users, *idle, *last = 50, time.Second, 90*time.Minute
	require.Contains(t, simulate(t, 1), "1h30m0s of virtual time")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, run(ctx, io.Discard), context.Canceled)
}

func TestSessionsThatEndAtTheWrongTime(t *testing.T) {
	s := newSimulation(1, tick, 1, io.Discard)
	defer s.wheel.Stop()
	u := newUser(s)
	u.login()
	require.NoError(t, s.check())
	u.last = u.last.Add(-tick) // as if it were a tick late
	s.wheel.Advance(tick)
	require.EqualError(t, s.check(), "1 sessions ended at the wrong time, 0 were lost")
	s.wrong, s.logins = 0, s.logins+1
	require.Error(t, s.check())
}

// keep restores a flag when the test ends.
func keep[T any](t *testing.T, flag *T) {
	was := *flag
	t.Cleanup(func() { *flag = was })
}
