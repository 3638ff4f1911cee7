package main

import (
	"bytes"
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runWith runs the program with the flags -tasks, -over, -work, -workers and -queue.
func runWith(ctx context.Context, n int, burst, each time.Duration, running, waiting int) (string, error) {
	*tasks, *over, *work, *workers, *queue = n, burst, each, running, waiting
	var out bytes.Buffer
	err := run(ctx, &out)
	return out.String(), err
}

// Each pool gets its line, and the numbers in it add up.
func TestProgram(t *testing.T) {
	out, err := runWith(t.Context(), 300, 10*time.Millisecond, time.Millisecond, 2, 1)
	require.NoError(t, err)
	require.Contains(t, out, "300 timers due within 10ms, each a task of 1ms; 2 workers, room for 1 to wait.\n")
	for _, line := range []string{
		`ants, blocking +300 +0 +0 +0 `,
		`ants, refusing +\d+ +0 +[1-9]\d* +0 `,
		`Wait +300 +0 +0 +0 `,
		`CallerRuns +\d+ +[1-9]\d* +0 +0 `,
		`Discard +\d+ +0 +0 +[1-9]\d* `,
	} {
		require.Regexp(t, regexp.MustCompile(line), out)
	}
}

// A pool with room for all tasks is never full. The one that refuses has no queue.
func TestNeverFull(t *testing.T) {
	out, err := runWith(t.Context(), 200, 0, 0, 1, 200)
	require.NoError(t, err)
	require.Len(t, regexp.MustCompile(`200 +0 +0 +0 `).FindAllString(out, -1), len(contestants)-1)
}

func TestBadFlags(t *testing.T) {
	for _, c := range []struct {
		tasks, workers, queue int
		over, work            time.Duration
		want                  string
	}{
		{tasks: 0, workers: 1, want: "at least 1"},
		{tasks: 1, workers: 0, want: "at least 1"},
		{tasks: 1, workers: 1, queue: -1, want: "must not be negative"},
		{tasks: 1, workers: 1, over: -1, want: "must not be negative"},
		{tasks: 1, workers: 1, work: -1, want: "must not be negative"},
	} {
		out, err := runWith(t.Context(), c.tasks, c.over, c.work, c.workers, c.queue)
		require.ErrorContains(t, err, c.want)
		require.Empty(t, out, "nothing runs")
	}
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := runWith(ctx, 1000, time.Hour, 0, 8, 50)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
