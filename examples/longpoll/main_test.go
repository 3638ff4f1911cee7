package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

func TestRun(t *testing.T) {
	*n = 50
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	require.Regexp(t, `\n50 readers wait\n(?s:.*)delivered late +[0-9.]+(?s:.*)\n0 are left parked\n$`, out.String())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	*n = 0
	require.NoError(t, run(ctx, &out), "its end answers polls that wait")
}

// Many readers of many topics: each receives every message of its topic, and no poll expires early.
// On a busy machine it takes longer until polls expire beside.
func TestLoad(t *testing.T) {
	const readers, topics, wait = 100, 10, 300 * time.Millisecond
	b, url := newServer(t)
	l := newLoad(url, readers, topics, wait)
	reading := make(chan struct{})
	go func() { defer close(reading); l.read(t.Context()) }()
	for end := time.Now().Add(time.Minute); ; {
		posting, cancel := context.WithTimeout(t.Context(), time.Second)
		require.NoError(t, l.post(posting, topics, 50))
		cancel()
		if len(l.posted) > 0 && b.parked.Stats().Expired > 0 || time.Now().After(end) {
			break
		}
	}
	require.Eventually(t, l.isDelivered, time.Minute, time.Millisecond)
	b.parked.Close()
	<-reading // all have their answer, before connections are closed
	for _, r := range l.readers {
		require.NoError(t, r.failed)
		require.Equal(t, l.posted[r.topic], r.received)
		if len(r.expired) > 0 {
			require.GreaterOrEqual(t, slices.Min(r.expired), time.Duration(0), "a poll expired early")
		}
	}
	require.Positive(t, b.parked.Stats().Expired)
	require.Zero(t, b.parked.Stats().Pending)
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
		{"GET", "news?wait=1h", "", 400, "wait: not a duration from 0s to 5m0s"},
		{"GET", "news", "", 200, `{"next":2,"messages":["rain",""]}`},
		{"GET", "news?offset=1", "", 200, `{"next":2,"messages":[""]}`},
		{"GET", "news?offset=2&wait=10ms", "", 204, ""},
		{"GET", "news?offset=-1", "", 400, "offset: not a number from 0"},
		{"GET", "news?offset=99999999999999999999", "", 400, "offset: not a number from 0"},
		{"GET", "news?wait=-1s", "", 400, "wait: not a duration from 0s to 5m0s"},
		{"GET", "news?wait=soon", "", 400, "wait: not a duration from 0s to 5m0s"},
		{"POST", "news", strings.Repeat("x", maxMessage), 200, "2"},
		{"POST", "news", strings.Repeat("x", maxMessage+1), 413, "http: request body too large"},
		{"DELETE", "news", "", 405, "Method Not Allowed"},
		{"GET", "", "", 404, "404 page not found"},
	} {
		status, answer := call(t, c.method, url+c.path, c.body)
		require.Equal(t, c.status, status, "%s %s", c.method, c.path)
		require.Equal(t, c.answer, answer, "%s %s", c.method, c.path)
	}
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
	for range maxAnswer + 5 {
		b.append("news", "x")
	}
	a := b.from("news", 0)
	require.Equal(t, maxAnswer, a.Next)
	require.Len(t, a.Messages, maxAnswer)
	a = b.from("news", a.Next)
	require.Equal(t, maxAnswer+5, a.Next)
	require.Len(t, a.Messages, 5)
}
