package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

func program(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(ctx, args, &out, &errs)
	return status, out.String(), errs.String()
}

// The real program, with its server and its readers. On a busy machine it may need longer
// to post a message, and for polls to expire.
func TestProgram(t *testing.T) {
	var stdout string
	for _, last := range []string{"1s", "5s", "25s"} {
		var status int
		var stderr string
		status, stdout, stderr = program(t.Context(), "-n", "100", "-topics", "10", "-wait", "300ms", "-for", last)
		require.Empty(t, stderr)
		require.Zero(t, status)
		if !strings.Contains(stdout, "\n0 messages posted") && !strings.Contains(stdout, "; 0 polls expired") {
			break
		}
	}
	require.Regexp(t, `\n[0-9]+ readers wait, after `, stdout)
	require.Regexp(t, `\n[1-9][0-9]* messages posted, [1-9][0-9]*0 delivered; [1-9][0-9]* polls expired; 100 readers were waiting`, stdout)
	require.Contains(t, stdout, " + 0 parked; ")
	require.Regexp(t, `\ndelivered late +[0-9.]+`, stdout)
	require.Regexp(t, `\nexpired late +[0-9.]+`, stdout)
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	status, stdout, stderr := program(ctx, "-n", "20", "-wait", "1m", "-for", "1h")
	require.Equal(t, 130, status)
	require.Equal(t, "longpoll: interrupted\n", stderr)
	require.Contains(t, stdout, "20 readers were waiting in the end and answered")
}

// The broker alone, until a real signal, which answers a poll that waits. On a busy machine
// the poll may not wait yet when the signal comes: then there must be more time between.
func TestCtrlC(t *testing.T) {
	if os.Getenv("LONGPOLL_MAIN") != "" {
		os.Args = []string{"longpoll", "-addr", "127.0.0.1:0"}
		main()
	}
	if runtime.GOOS == "windows" {
		t.Skip("there is no way to send an interrupt")
	}
	for _, patience := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 8 * time.Second} {
		status, rest := interruptBroker(t, patience)
		if !strings.Contains(rest, "1 polls were waiting and have been answered") {
			t.Log(rest)
			continue
		}
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, rest, "polls: 1 = 0 satisfied (0 of them at once) + 0 expired + 0 canceled + 1 closed + 0 parked")
		return
	}
	t.Error("no poll was waiting")
}

// interruptBroker starts the program and a poll, sends a signal after a while, and returns
// the status of the answer, 0 if there was none, and what the program has printed.
func interruptBroker(t *testing.T, patience time.Duration) (status int, stdout string) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestCtrlC$")
	cmd.Env = append(os.Environ(), "LONGPOLL_MAIN=1")
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(pipe)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "serving on ")
	require.True(t, ok, line)

	answered := make(chan int, 1)
	go func() {
		response, err := http.Get(url + "news?wait=5m")
		if err != nil {
			answered <- 0
			return
		}
		discard(response)
		answered <- response.StatusCode
	}()
	time.Sleep(patience)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	return <-answered, string(rest)
}

func newServer(t *testing.T) (*broker, string) {
	wheel := timingwheel.New()
	b := newBroker(wheel)
	server := httptest.NewServer(b.handler())
	t.Cleanup(func() {
		b.parked.Close()
		server.Close()
		require.Zero(t, wheel.Len())
		wheel.Stop()
	})
	return b, server.URL + "/topics/"
}

func call(t *testing.T, method, url, body string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, strings.TrimSpace(string(text))
}

func TestBroker(t *testing.T) {
	_, url := newServer(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"GET", "news?wait=0s", "", 204, ""},
		{"GET", "news?offset=3&wait=10ms", "", 204, ""},
		{"POST", "news", "rain", 200, "0"},
		{"POST", "news", "", 200, "1"},
		{"GET", "news?wait=1h", "", 400, `wait: "1h" is not a duration from 0s to 5m0s`},
		{"GET", "news", "", 200, `{"next":2,"messages":["rain",""]}`},
		{"GET", "news?offset=1", "", 200, `{"next":2,"messages":[""]}`},
		{"GET", "news?offset=2&wait=10ms", "", 204, ""},
		{"GET", "news?offset=-1", "", 400, `offset: "-1" is not a number from 0`},
		{"GET", "news?offset=x", "", 400, `offset: "x" is not a number from 0`},
		{"GET", "news?offset=99999999999999999999", "", 400, `offset: "99999999999999999999" is not a number from 0`},
		{"GET", "news?wait=-1s", "", 400, `wait: "-1s" is not a duration from 0s to 5m0s`},
		{"GET", "news?wait=soon", "", 400, `wait: "soon" is not a duration from 0s to 5m0s`},
		{"GET", "good%20news", "", 400, `topic "good news" does not match ^[A-Za-z0-9._-]{1,64}$`},
		{"POST", "good%20news", "x", 400, `topic "good news" does not match ^[A-Za-z0-9._-]{1,64}$`},
		{"POST", "news", strings.Repeat("x", maxMessage), 200, "2"},
		{"POST", "news", strings.Repeat("x", maxMessage+1), 413, "a message has at most 65536 bytes"},
		{"DELETE", "news", "", 405, "Method Not Allowed"},
		{"GET", "", "", 404, "404 page not found"},
	} {
		status, answer := call(t, c.method, url+c.path, c.body)
		require.Equal(t, c.status, status, "%s %s", c.method, c.path)
		require.Equal(t, c.answer, answer, "%s %s", c.method, c.path)
	}
}

func TestTooManyTopics(t *testing.T) {
	b, url := newServer(t)
	for i := range maxTopics {
		b.topic(topicOf(i), true)
	}
	status, answer := call(t, "POST", url+"another", "x")
	require.Equal(t, http.StatusInsufficientStorage, status)
	require.Equal(t, "there are 10000 topics already", answer)
	status, _ = call(t, "GET", url+"another?wait=0s", "")
	require.Equal(t, http.StatusNoContent, status, "a poll makes no topic")
}

// A poll that waits is answered by a post; one whose client goes away is parked no
// longer.
func TestParkedPolls(t *testing.T) {
	b, url := newServer(t)
	parked := func(n int64) {
		t.Helper()
		require.Eventually(t, func() bool { return b.parked.Stats().Pending == n }, 30*time.Second, time.Millisecond)
	}
	answers := make(chan string)
	go func() {
		_, answer := call(t, "GET", url+"news?wait=5m", "")
		answers <- answer
	}()
	parked(1)
	status, _ := call(t, "POST", url+"other", "nothing to it")
	require.Equal(t, 200, status)
	parked(1)
	status, _ = call(t, "POST", url+"news", "rain")
	require.Equal(t, 200, status)
	require.Equal(t, `{"next":1,"messages":["rain"]}`, <-answers)
	parked(0)

	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, "GET", url+"news?offset=1&wait=5m", nil)
	require.NoError(t, err)
	go func() {
		_, err := http.DefaultClient.Do(request)
		answers <- err.Error()
	}()
	parked(1)
	cancel()
	require.Contains(t, <-answers, "context canceled")
	parked(0)
}

// More than one answer can have.
func TestManyMessages(t *testing.T) {
	b, _ := newServer(t)
	log := b.topic("news", true)
	for range maxAnswer + 5 {
		log.append("x")
	}
	a := log.from(0)
	require.Equal(t, maxAnswer, a.Next)
	require.Len(t, a.Messages, maxAnswer)
	a = log.from(a.Next)
	require.Equal(t, maxAnswer+5, a.Next)
	require.Len(t, a.Messages, 5)
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-x"}, {"5"}, {"-n", "0"}, {"-topics", "20000"}, {"-rate", "0"}, {"-wait", "0s"}, {"-wait", "1h"}, {"-wait", "2s", "-for", "1s"}} {
		status, _, stderr := program(t.Context(), args...)
		require.Equal(t, 2, status)
		require.Contains(t, stderr, "Usage")
	}
	status, _, stderr := program(t.Context(), "-h")
	require.Zero(t, status)
	require.Contains(t, stderr, "Usage")
	status, _, stderr = program(t.Context(), "-addr", "nowhere:x")
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "longpoll: listen tcp")
}
