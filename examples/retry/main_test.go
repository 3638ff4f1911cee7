package main

import (
	"bytes"
	"context"
	"runtime"
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

// The real program with its real server, which hangs, fails and answers. The number of
// attempts depends on how busy the machine is; TestThousands counts them.
func TestProgram(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	var status int
	var stdout, stderr string
	for _, timeout := range []string{"1s", "5s", "25s"} {
		status, stdout, stderr = program(t.Context(), "-calls", "400", "-inflight", "20", "-timeout", timeout, "-base", "5ms", "-cap", "20ms", "-limit", "1h")
		// Those that hang. On a busy machine others take too long, too. Then a longer
		// timeout must do.
		if strings.Contains(stdout, " attempts, 4 of them over their deadline;") {
			break
		}
	}
	require.Empty(t, stderr)
	require.Zero(t, status)
	require.Contains(t, stdout, "396 succeeded, 4 gave up after 6 attempts, 0 canceled (0 of them on the wheel)\n")
	require.Regexp(t, `\n[0-9]+ retries, each later than planned by min [0-9]`, stdout)
	require.Contains(t, stdout, "and left 0 on the wheel\n")
	for range 3000 { // connections take a moment to go
		if runtime.NumGoroutine() <= goroutines {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines before, %d after", goroutines, runtime.NumGoroutine())
}

func TestLimit(t *testing.T) {
	status, stdout, stderr := program(t.Context(), "-calls", "100", "-base", "1h", "-cap", "1h", "-limit", "200ms")
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "not done after 200ms: no promise is broken")
	require.Contains(t, stdout, " 0 gave up")
	require.Contains(t, stdout, "and left 0 on the wheel\n")
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	status, stdout, _ := program(ctx, "-calls", "100", "-base", "1h", "-cap", "1h", "-limit", "2h")
	require.Equal(t, 130, status)
	require.Contains(t, stdout, "and left 0 on the wheel\n")
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-x"}, {"5"}, {"-calls", "0"}, {"-base", "0s"}, {"-base", "2s", "-cap", "1s"}, {"-limit", "-1s"}} {
		status, _, stderr := program(t.Context(), args...)
		require.Equal(t, 2, status)
		require.Contains(t, stderr, "Usage")
	}
	status, _, stderr := program(t.Context(), "-h")
	require.Zero(t, status)
	require.Contains(t, stderr, "Usage")
}

func TestBrokenPromises(t *testing.T) {
	o := &options{calls: 100, policy: policy{inFlight: 10, attempts: 3}}
	good := func() *result { // of the 100, a quarter fails 0, 1, 2 and 3 times, and one always
		return &result{
			succeeded: 75, gaveUp: 25, mostInFlight: 10,
			calls: []int{0, 25, 25, 50}, late: make([]time.Duration, 125),
		}
	}
	require.Empty(t, good().broken(o, 0))
	require.Equal(t, []string{"1 left on the wheel"}, good().broken(o, 1))
	for want, spoil := range map[string]func(r *result){
		"100 calls, and 99 have ended":          func(r *result) { r.succeeded-- },
		"11 in flight, and not 10":              func(r *result) { r.mostInFlight++ },
		"a retry was early":                     func(r *result) { r.late[7] = -1 },
		"124 retries, but 225 attempts":         func(r *result) { r.late = r.late[1:] },
		"25 calls are hopeless, and 24 gave up": func(r *result) { r.gaveUp--; r.succeeded++ },
	} {
		r := good()
		spoil(r)
		require.Equal(t, []string{want}, r.broken(o, 0))
	}
}
