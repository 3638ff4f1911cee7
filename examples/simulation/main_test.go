package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// simulate runs the program, which must succeed, and returns what it prints.
func simulate(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	status := run(t.Context(), args, &out, &errs)
	require.Zero(t, status, errs.String())
	require.Empty(t, errs.String())
	return out.String()
}

var took = regexp.MustCompile(`took .*`) // in real time, which no day repeats

func TestDay(t *testing.T) {
	day := simulate(t, "-users", "500")
	require.Equal(t, 24, strings.Count(day, "h  ")-strings.Count(day, "0h0m0s  "), "a line an hour:\n%s", day)
	require.Contains(t, day, "24h0m0s of virtual time")
	again := simulate(t, "-users", "500")
	require.Equal(t, took.ReplaceAllString(day, ""), took.ReplaceAllString(again, ""), "the same seed")
	other := simulate(t, "-users", "500", "-seed", "2")
	require.NotEqual(t, took.ReplaceAllString(day, ""), took.ReplaceAllString(other, ""))
}

// With a limit this short nearly every click needs a login.
func TestShortSessions(t *testing.T) {
	out := simulate(t, "-users", "50", "-idle", "1s", "-for", "90m")
	require.Contains(t, out, "1h30m0s of virtual time")
}

func TestSessionsThatEndAtTheWrongTime(t *testing.T) {
	var out, errs bytes.Buffer
	s := newSimulation(settings{users: 1, limit: tick}, &out)
	defer s.wheel.Stop()
	u := newUser(s)
	u.login()
	u.last = u.last.Add(-tick) // as if it were a tick late
	s.wheel.Advance(tick)
	require.Equal(t, 1, s.report(1, &errs))
	require.Contains(t, errs.String(), "1 sessions ended at the wrong time, 0 were lost")
	s.wrong, s.logins = 0, s.logins+1
	require.Equal(t, 1, s.report(1, &errs))
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{{"-users", "0"}, {"-for", "0s"}, {"-idle", "-1s"}, {"-seed", "x"}, {"more"}} {
		var out, errs bytes.Buffer
		require.Equal(t, 2, run(t.Context(), args, &out, &errs))
		require.Empty(t, out.String())
		require.Contains(t, errs.String(), "Usage of simulation")
	}
	require.Zero(t, run(t.Context(), []string{"-h"}, new(bytes.Buffer), new(bytes.Buffer)))
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errs bytes.Buffer
	require.Equal(t, 130, run(ctx, []string{"-users", "1"}, new(bytes.Buffer), &errs))
	require.Equal(t, "simulation: interrupted\n", errs.String())
}
