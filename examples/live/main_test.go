package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// The program with its page open, until its end.
func TestRun(t *testing.T) {
	*addr, *rate = "127.0.0.1:0", 500
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, in := io.Pipe()
	go func() { in.CloseWithError(run(ctx, in)) }()
	lines := bufio.NewReader(out)
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

	interrupt()
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.Regexp(t, `^left pending: \d+ requests, \d+ sessions\n$`, string(rest))
}

func TestDuration(t *testing.T) {
	*addr, *duration = "127.0.0.1:0", 300*time.Millisecond
	start := time.Now()
	require.NoError(t, run(t.Context(), io.Discard))
	require.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
}

func TestAddressTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	*addr = taken.Addr().String()
	require.ErrorContains(t, run(t.Context(), io.Discard), "in use")
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
