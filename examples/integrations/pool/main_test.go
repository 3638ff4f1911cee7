package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func program(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(ctx, args, &out, &errs)
	return status, out.String(), errs.String()
}

// Each pool gets its line, and the numbers in it add up.
func TestProgram(t *testing.T) {
	status, stdout, stderr := program(t.Context(), "-tasks", "300", "-over", "10ms", "-workers", "2", "-queue", "1")
	require.Zero(t, status, stderr)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "300 timers due within 10ms, each a task of 1ms; 2 workers, room for 1 to wait.\n")
	for _, line := range []string{
		`ants, blocking +300 +0 +0 `,
		`FullWait +300 +0 +0 `,
		`FullCallerRuns +\d+ +[1-9]\d* +0 `,
		`FullDiscard +\d+ +0 +[1-9]\d* `,
	} {
		require.Regexp(t, regexp.MustCompile(line), stdout)
	}
}

// A pool with room for all tasks is never full.
func TestNeverFull(t *testing.T) {
	status, stdout, stderr := program(t.Context(), "-tasks", "200", "-over", "0s", "-work", "0s", "-workers", "1", "-queue", "200")
	require.Zero(t, status, stderr)
	require.Len(t, regexp.MustCompile(`200 +0 +0 `).FindAllString(stdout, -1), len(contestants))
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"-tasks 0":        "-tasks must be from 1 to",
		"-tasks 99999999": "-tasks must be from 1 to",
		"-tasks many":     "invalid value",
		"-workers 0":      "-workers must be at least 1",
		"-queue -1":       "must not be negative",
		"-over -1s":       "must not be negative",
		"-work -1ns":      "must not be negative",
		"-x":              "not defined",
		"-tasks 5 and 6":  `what is "and"?`,
		"-work forever":   "invalid value",
	} {
		status, stdout, stderr := program(t.Context(), strings.Fields(args)...)
		require.Equal(t, 2, status, args)
		require.Empty(t, stdout, "nothing runs")
		require.Contains(t, stderr, want)
		require.Contains(t, stderr, "Usage")
	}
	status, _, stderr := program(t.Context(), "-h")
	require.Zero(t, status)
	require.Contains(t, stderr, "-workers")
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	status, _, _ := program(ctx, "-over", "1h")
	require.Equal(t, 130, status)
}
