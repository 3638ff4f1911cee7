package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// seen is what a handler finds when its context ends.
type seen struct{ err, cause error }

// wait waits until a handler has seen its context end.
func wait(ctx context.Context) seen {
	<-ctx.Done()
	return seen{ctx.Err(), context.Cause(ctx)}
}

// served is a real server behind Timeout. After each request, left has the number of
// deadlines on the wheel.
type served struct {
	*httptest.Server
	left chan int
	log  bytes.Buffer
}

func serve(t *testing.T, d time.Duration, next http.HandlerFunc) *served {
	w := timingwheel.New()
	s := &served{left: make(chan int, 1)}
	handler := Timeout(w, d, next)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		defer func() { s.left <- w.Len() }()
		handler.ServeHTTP(rw, r)
	}))
	s.Config.ErrorLog = log.New(&s.log, "", 0)
	s.Start()
	t.Cleanup(func() {
		s.Close()
		w.Stop()
		require.Empty(t, s.log.String())
	})
	return s
}

func get(t *testing.T, url string) (status int, text string) {
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestFast(t *testing.T) {
	s := serve(t, time.Hour, func(rw http.ResponseWriter, r *http.Request) {
		deadline, ok := r.Context().Deadline()
		if ok && r.Context().Err() == nil && time.Until(deadline) <= time.Hour {
			io.WriteString(rw, "done")
		}
	})
	status, text := get(t, s.URL)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "done", text)
	require.Zero(t, <-s.left)
}

func TestSlow(t *testing.T) {
	const limit = 50 * time.Millisecond
	saw := make(chan seen, 1)
	s := serve(t, limit, func(_ http.ResponseWriter, r *http.Request) { saw <- wait(r.Context()) })
	start := time.Now()
	status, text := get(t, s.URL)
	require.GreaterOrEqual(t, time.Since(start), limit)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "timed out\n", text)
	require.Equal(t, seen{context.DeadlineExceeded, errTimeout}, <-saw)
	require.Zero(t, <-s.left)
}

func TestClientGoesAway(t *testing.T) {
	ctx, goAway := context.WithCancel(t.Context())
	saw := make(chan seen, 1)
	s := serve(t, time.Hour, func(_ http.ResponseWriter, r *http.Request) {
		goAway()
		saw <- wait(r.Context())
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	require.NoError(t, err)
	_, err = http.DefaultClient.Do(req)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, seen{context.Canceled, context.Canceled}, <-saw)
	require.Zero(t, <-s.left)
}

// A handler that has begun a stream learns that time is up, and ends the stream as it likes.
func TestStream(t *testing.T) {
	for name, flush := range map[string]func(http.ResponseWriter) error{
		"Flusher":            func(rw http.ResponseWriter) error { rw.(http.Flusher).Flush(); return nil },
		"ResponseController": func(rw http.ResponseWriter) error { return http.NewResponseController(rw).Flush() },
	} {
		t.Log(name)
		read := make(chan bool)
		s := serve(t, 50*time.Millisecond, func(rw http.ResponseWriter, r *http.Request) {
			// SetWriteDeadline is reached only through Unwrap.
			err := http.NewResponseController(rw).SetWriteDeadline(time.Now().Add(time.Hour))
			io.WriteString(rw, "first\n")
			err = errors.Join(err, flush(rw))
			<-read // were it not flushed, the client would wait, and we for it
			if err == nil && wait(r.Context()).cause == errTimeout {
				io.WriteString(rw, "last\n")
			}
		})
		resp, err := http.Get(s.URL)
		require.NoError(t, err)
		defer resp.Body.Close()
		lines := bufio.NewReader(resp.Body)
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "first\n", line)
		close(read)
		rest, err := io.ReadAll(lines)
		require.NoError(t, err)
		require.Equal(t, "last\n", string(rest))
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Zero(t, <-s.left)
	}
}

// Early hints are not a response. (A recorder takes them for one.)
func TestEarlyHints(t *testing.T) {
	s := serve(t, 50*time.Millisecond, func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(http.StatusEarlyHints)
		wait(r.Context())
	})
	status, _ := get(t, s.URL)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Zero(t, <-s.left)
}

// After a handler has taken the connection over, the wrapper does nothing, and net/http
// has nothing to complain about.
func TestHijack(t *testing.T) {
	s := serve(t, 50*time.Millisecond, func(rw http.ResponseWriter, r *http.Request) {
		conn, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		wait(r.Context())
		io.WriteString(conn, "HTTP/1.1 418 I'm a teapot\r\nContent-Length: 5\r\n\r\nlate\n")
	})
	status, text := get(t, s.URL)
	require.Equal(t, http.StatusTeapot, status)
	require.Equal(t, "late\n", text)
	require.Zero(t, <-s.left)
}

func TestPanic(t *testing.T) {
	s := serve(t, time.Hour, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err := http.Get(s.URL)
	require.Error(t, err)
	require.Zero(t, <-s.left)
}

// The response to a request that has overrun its deadline, on a simulated clock and
// without a network.
func TestOverrun(t *testing.T) {
	for name, test := range map[string]struct {
		first func(http.ResponseWriter) // before the deadline
		then  func(http.ResponseWriter) // after it
		want  int
	}{
		"nothing":      {want: 503},
		"header field": {first: func(rw http.ResponseWriter) { rw.Header().Set("Content-Length", "4") }, want: 503},
		"status":       {first: func(rw http.ResponseWriter) { rw.WriteHeader(202) }, want: 202},
		"body":         {first: func(rw http.ResponseWriter) { io.WriteString(rw, "a") }, want: 200},
		"flushed":      {first: func(rw http.ResponseWriter) { rw.(http.Flusher).Flush() }, want: 200},
		"late":         {then: func(rw http.ResponseWriter) { io.WriteString(rw, "at last") }, want: 200},
		"own words":    {then: func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusGatewayTimeout) }, want: 504},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := timingwheel.New()
			defer w.Stop()
			start := time.Now()
			handler := Timeout(w, 300*time.Millisecond, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if test.first != nil {
					test.first(rw)
				}
				require.Equal(t, 1, w.Len())
				require.Equal(t, seen{context.DeadlineExceeded, errTimeout}, wait(r.Context()))
				require.Equal(t, 300*time.Millisecond, time.Since(start))
				if test.then != nil {
					test.then(rw)
				}
			}))
			rec := httptest.NewRecorder()
			handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
			require.Equal(t, test.want, rec.Code, name)
			require.Equal(t, test.want == 503, rec.Body.String() == "timed out\n", name)
			require.Zero(t, w.Len())
		})
	}
}

// A client that has gone away gets no answer.
func TestCanceledIsNotAnswered(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	handler := Timeout(w, time.Hour, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		wait(r.Context())
	}))
	rec := httptest.NewRecorder()
	handler.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	require.Empty(t, rec.Body.String())
	require.Zero(t, w.Len())
}

// The earlier deadline wins, the parent's or the wheel's.
func TestParentHasADeadline(t *testing.T) {
	errParent := errors.New("the parent's")
	for _, test := range []struct {
		parent, own time.Duration
		cause       error
	}{
		{50 * time.Millisecond, time.Hour, errParent},
		{time.Hour, 50 * time.Millisecond, errTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := timingwheel.New()
			defer w.Stop()
			start := time.Now()
			handler := Timeout(w, test.own, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				deadline, _ := r.Context().Deadline()
				require.Equal(t, start.Add(50*time.Millisecond), deadline)
				require.Equal(t, seen{context.DeadlineExceeded, test.cause}, wait(r.Context()))
			}))
			parent, cancel := context.WithTimeoutCause(t.Context(), test.parent, errParent)
			defer cancel()
			rec := httptest.NewRecorder()
			handler.ServeHTTP(rec, httptest.NewRequestWithContext(parent, http.MethodGet, "/", nil))
			require.Equal(t, 50*time.Millisecond, time.Since(start))
			require.Equal(t, http.StatusServiceUnavailable, rec.Code)
			require.Zero(t, w.Len())
		})
	}
}

// A writer that cannot flush or be taken over reports so, without harm.
func TestPlainWriter(t *testing.T) {
	rec := httptest.NewRecorder()
	resp := &response{ResponseWriter: struct{ http.ResponseWriter }{rec}}
	resp.Flush()
	require.ErrorIs(t, resp.FlushError(), http.ErrNotSupported)
	_, _, err := resp.Hijack()
	require.ErrorIs(t, err, http.ErrNotSupported)
	require.False(t, resp.begun)
}

// On a machine that is too busy to answer the fast requests in time, another run must do.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	for tries := 0; tries < 5 && !strings.Contains(out.String(), "/fast      200"); tries++ {
		out.Reset()
		require.NoError(t, run(t.Context(), &out))
	}
	require.Regexp(t, `(?s)GET /fast +200 "done" .*GET /slow +503 "timed out" .*GET /stubborn +200 "done at last" .*left on the wheel: 0\n$`, out.String())
}
