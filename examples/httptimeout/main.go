// Httptimeout gives each HTTP request a deadline from a timing wheel: [Timeout] wraps a
// handler, and the handler finds the deadline in its request's context.
//
//	go run ./examples/httptimeout
//
// It runs a server on loopback with three handlers: one is fast, one is slow and gives up
// at the deadline, and one is slow and does not look. It asks each, prints what came back, and
// ends after about a second.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/examples/internal/program"
	"github.com/tickwheel/tickwheel/timingwheel"
)

const (
	limit    = 300 * time.Millisecond // for each request
	fast     = 20 * time.Millisecond
	slow     = 10 * time.Second
	stubborn = 600 * time.Millisecond
)

func main() { program.Main(run) }

func run(ctx context.Context, out io.Writer) error {
	w := timingwheel.New()
	defer w.Stop()
	server := httptest.NewServer(Timeout(w, limit, handlers()))
	defer server.Close()
	fmt.Fprintf(out, "each request has %v\n", limit)
	for _, path := range []string{"/fast", "/slow", "/stubborn"} {
		start := time.Now()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "GET %-10s %d %-15q after %v\n", path, response.StatusCode,
			strings.TrimSpace(string(text)), time.Since(start).Round(time.Millisecond))
	}
	fmt.Fprintln(out, "left on the wheel:", w.Len())
	return nil
}

func handlers() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/fast", func(rw http.ResponseWriter, r *http.Request) {
		work(r.Context(), fast)
		fmt.Fprint(rw, "done")
	})
	mux.HandleFunc("/slow", func(rw http.ResponseWriter, r *http.Request) {
		if work(r.Context(), slow) {
			fmt.Fprint(rw, "done")
		} // otherwise Timeout answers
	})
	mux.HandleFunc("/stubborn", func(rw http.ResponseWriter, _ *http.Request) {
		time.Sleep(stubborn) // and never asks whether anybody still wants it
		fmt.Fprint(rw, "done at last")
	})
	return mux
}

// work takes d. It reports false if ctx ended before that.
func work(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
