package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The program with its server.
func TestRun(t *testing.T) {
	was := p
	t.Cleanup(func() { p = was })
	*calls, p.timeout = 400, time.Minute
	p.backoff.base, p.backoff.cap = time.Millisecond, 5*time.Millisecond
	*limit = time.Hour
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	require.Contains(t, out.String(), "396 succeeded, 4 gave up after 6 attempts, 0 were canceled\n")
	require.Contains(t, out.String(), `
       0      0
       1    100
       2    100
       3    100
       4     96
       5      0
       6      4
`)
	require.Regexp(t, "retries later than planned +[0-9]", out.String())

	p.backoff.base, p.backoff.cap = time.Hour, time.Hour
	*limit = 50 * time.Millisecond
	out.Reset()
	require.ErrorIs(t, run(t.Context(), &out), context.DeadlineExceeded)
	require.Contains(t, out.String(), " 0 gave up")
}
