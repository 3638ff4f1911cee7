package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// The real program, with its page open, until a real signal.
func TestCtrlC(t *testing.T) {
	if os.Getenv("LIVE_MAIN") != "" {
		os.Args = []string{"live", "-addr", "127.0.0.1:0", "-rate", "500"}
		main()
	}
	if runtime.GOOS == "windows" {
		t.Skip("there is no way to send an interrupt")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestCtrlC$")
	cmd.Env = append(os.Environ(), "LIVE_MAIN=1")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "open ")
	require.True(t, ok, line)

	resp, err := http.Get(strings.TrimSuffix(url, path))
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	require.NoError(t, err)
	require.Equal(t, url, resp.Request.URL.String())
	require.Contains(t, string(text), `"requests": `)
	require.Contains(t, string(text), `"sessions": `)
	require.Contains(t, string(text), `pool "cleaning": `)

	events, err := http.Get(url + "?format=events")
	require.NoError(t, err)
	defer events.Body.Close()
	_, err = events.Body.Read(make([]byte, 1))
	require.NoError(t, err)

	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.Regexp(t, `^left pending: \d+ requests, \d+ sessions\n$`, string(rest))
	require.NoError(t, cmd.Wait())
}

func TestDuration(t *testing.T) {
	var out, errs bytes.Buffer
	start := time.Now()
	require.Zero(t, run(t.Context(), []string{"-addr", "127.0.0.1:0", "-duration", "300ms"}, &out, &errs), "%v", &errs)
	require.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
	require.Regexp(t, `^open http://127.0.0.1:\d+/debug/timingwheel/\nleft pending: \d+ requests, \d+ sessions\n$`, out.String())
	require.Empty(t, errs.String())
}

func TestAddressTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	addr := taken.Addr().String()
	other, err := listen(settings{addr: addr})
	require.NoError(t, err)
	defer other.Close()
	require.NotEqual(t, addr, other.Addr().String())
	require.True(t, other.Addr().(*net.TCPAddr).IP.IsLoopback())

	_, err = listen(settings{addr: addr, chosen: true})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	var out, errs bytes.Buffer
	require.Equal(t, 1, run(t.Context(), []string{"-addr", addr}, &out, &errs))
	require.Contains(t, errs.String(), "address already in use")
	require.Empty(t, out.String())
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"-x":            "flag provided but not defined",
		"-rate many":    "invalid value",
		"-rate 0":       "-rate 0 is not between 1 and",
		"-rate 9999999": "-rate 9999999 is not between 1 and",
		"-cancel 1.5":   "-cancel 1.5 is not between 0 and 1",
		"-cancel NaN":   "not between",
		"-duration -1s": "-duration -1s is negative",
		"file":          `unexpected argument "file"`,
	} {
		var out, errs bytes.Buffer
		require.Equal(t, 2, run(t.Context(), strings.Fields(args), &out, &errs), args)
		require.Contains(t, errs.String(), want)
		require.Contains(t, errs.String(), "Usage of live:")
		require.Empty(t, out.String())
	}
	require.Zero(t, run(t.Context(), []string{"-h"}, io.Discard, io.Discard))
}

// The load is what the flags say, on a simulated clock.
func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		defer w.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		newLoad(w, 1000, 0.5).run(ctx)
		time.Sleep(time.Second)
		st := w.Stats()
		require.True(t, errors.Is(ctx.Err(), context.DeadlineExceeded))
		// 60 s of 1000, and 500 in each of six bursts, and at the start 2000 for later.
		require.InDelta(t, 65_000, st.Scheduled, 20_000) // with ticker, job, contexts
		require.Greater(t, st.Stopped, int64(10_000))
		require.Greater(t, st.Expired, int64(10_000))
		require.Greater(t, st.Pending, int64(2000))
		require.Len(t, st.Levels, 3)
	})
}

func TestPushBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithTick(100 * time.Millisecond))
		defer w.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		pushBack(ctx, w, 1000, func() {})
		st := w.Stats()
		require.Greater(t, st.Reset, int64(3000))
		require.Greater(t, st.Expired, int64(500))
		require.Greater(t, st.Pending, int64(500))
	})
}
