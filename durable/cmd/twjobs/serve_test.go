package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/admin"
)

func TestServe(t *testing.T) {
	dir, waiting, _ := fill(t)
	for _, writes := range []bool{false, true} {
		args := []string{"-dir", dir, "serve", "-listen", "127.0.0.1:0"}
		if writes {
			args = append(args, "-write")
		}
		ctx, stop := context.WithCancel(within(t))
		in, out := io.Pipe()
		var log strings.Builder
		status := make(chan int)
		go func() { status <- run(ctx, args, out, &log); out.Close() }()
		says, err := bufio.NewReader(in).ReadString('\n')
		require.NoError(t, err)
		base := regexp.MustCompile(`http://[^/]+/`).FindString(says)
		require.NotEmpty(t, base, says)

		get := func(path, host string) (int, string) {
			r, err := http.NewRequestWithContext(t.Context(), "GET", base+path, nil)
			require.NoError(t, err)
			r.Host = host
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			return answer.StatusCode, string(text)
		}
		code, page := get("", "localhost")
		require.Equal(t, 200, code)
		require.Contains(t, page, "<html")
		code, list := get("list", "")
		require.Equal(t, 200, code)
		require.Contains(t, list, waiting)
		code, metrics := get("metrics", "")
		require.Equal(t, 200, code)
		require.Contains(t, metrics, `durable_pending{queue="durable"} 2`)
		code, _ = get("list", "other.example")
		require.Equal(t, 403, code, "another site's name for this address")

		r, err := http.NewRequestWithContext(t.Context(), "POST", base+"cancel", strings.NewReader(`{"refs":["`+waiting+`"]}`))
		require.NoError(t, err)
		r.Header.Set(admin.Header, "1")
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		require.NoError(t, err)
		require.Equal(t, writes, answer.StatusCode == 200, answer.Status)
		require.Equal(t, !writes, strings.Contains(string(text), "serve with -write"), string(text))

		stop()
		require.Zero(t, <-status, log.String())
	}
}

func TestServeMisused(t *testing.T) {
	dir, _, _ := fill(t)
	for args, want := range map[string]string{
		"serve more": "unexpected argument", "serve -listen nowhere:x": "unknown port", "serve -listen": "needs an argument",
	} {
		out, status := twjobs(t, dir, strings.Fields(args)...)
		require.NotZero(t, status)
		require.Contains(t, out, want)
	}
	var out strings.Builder
	require.Equal(t, 2, run(within(t), []string{"-url", "http://localhost:1/", "serve"}, &out, &out))
	require.Contains(t, out.String(), "not with -url")
}

// A request that is under way when serve ends is answered.
func TestServeEndsAfterRequests(t *testing.T) {
	dir, waiting, _ := fill(t)
	ctx, stop := context.WithCancel(within(t))
	defer stop()
	in, out := io.Pipe()
	status := make(chan int, 1)
	go func() {
		status <- run(ctx, []string{"-dir", dir, "serve", "-listen", "127.0.0.1:0", "-write"}, out, io.Discard)
		out.Close()
	}()
	says, err := bufio.NewReader(in).ReadString('\n')
	require.NoError(t, err)
	c, err := net.Dial("tcp", regexp.MustCompile(`127[^/]+`).FindString(says))
	require.NoError(t, err)
	defer c.Close()
	body := `{"refs":["` + waiting + `"]}`
	fmt.Fprintf(c, "POST /cancel HTTP/1.1\r\nHost: localhost\r\n%s: 1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", admin.Header, len(body))
	answers := bufio.NewReader(c)
	begun, err := http.ReadResponse(answers, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusContinue, begun.StatusCode)
	stop()
	time.Sleep(100 * time.Millisecond) // serve would return meanwhile
	fmt.Fprint(c, body)
	answer, err := http.ReadResponse(answers, nil)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), `"done":true`)
	require.Zero(t, <-status)
}
