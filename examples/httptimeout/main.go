// Httptimeout gives each HTTP request a deadline from a timing wheel: [Timeout] wraps a
// handler, and the handler finds the deadline in its request's context.
//
//	go run ./examples/httptimeout
//
// It runs a server on loopback with three handlers: one is fast, one is slow and gives up
// at the deadline, and one is slow and does not look. It sends each some requests at
// once, prints what came back, and ends after about a second. The exit status is 0 if all
// was as expected and nothing is left on the wheel.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

const (
	limit    = 300 * time.Millisecond // for each request
	fast     = 20 * time.Millisecond
	slow     = 10 * time.Second
	stubborn = 600 * time.Millisecond
	requests = 50 // at once, to each handler
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program. It returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		fmt.Fprintln(stderr, "usage: httptimeout   without arguments")
		return 2
	}
	w := timingwheel.New()
	defer w.Stop()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(stderr, "httptimeout:", err)
		return 1
	}
	server := &http.Server{Handler: Timeout(w, limit, handlers())}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()

	fmt.Fprintf(stdout, "each request has %v; %d at once to each handler\n", limit, requests)
	err = askAll("http://"+listener.Addr().String(), stdout)
	// Shutdown waits for the handlers, so what they had on the wheel is gone by now.
	err = errors.Join(err, server.Shutdown(context.Background()))
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	fmt.Fprintln(stdout, "left on the wheel:", w.Len())
	if n := w.Len(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d deadlines are left on the wheel", n))
	}
	if err != nil {
		fmt.Fprintln(stderr, "httptimeout:", err)
		return 1
	}
	return 0
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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// wanted is what the handlers promise.
var wanted = []promise{
	{"/fast", http.StatusOK, fast},
	{"/slow", http.StatusServiceUnavailable, limit},
	{"/stubborn", http.StatusOK, stubborn},
}

type promise struct {
	path    string
	status  int
	atLeast time.Duration // never early
}

// askAll asks all handlers at the same time and prints what came back. It returns an
// error if that is not what they promise.
func askAll(url string, out io.Writer) error {
	client := &http.Client{Transport: &http.Transport{}} // of its own, to leave no connection behind
	defer client.CloseIdleConnections()
	answers := make([][requests]answer, len(wanted))
	var asking sync.WaitGroup
	for i := range answers {
		for j := range answers[i] {
			asking.Go(func() { answers[i][j] = ask(client, url+wanted[i].path) })
		}
	}
	asking.Wait()
	var err error
	for i, p := range wanted {
		err = errors.Join(err, p.check(answers[i][:], out))
	}
	return err
}

func (p promise) check(all []answer, out io.Writer) error {
	slices.SortFunc(all, func(a, b answer) int { return cmp.Compare(a.took, b.took) })
	first, last := all[0], all[len(all)-1]
	fmt.Fprintf(out, "GET %-10s %d %-15q after %v to %v\n", p.path, first.status, first.text, round(first.took), round(last.took))
	for _, a := range all {
		switch {
		case a.err != nil:
			return a.err
		case a.status != p.status:
			return fmt.Errorf("GET %s: status %d instead of %d", p.path, a.status, p.status)
		case a.took < p.atLeast:
			return fmt.Errorf("GET %s: early, after %v", p.path, a.took)
		}
	}
	return nil
}

// answer is what came back from a request.
type answer struct {
	status int
	text   string
	took   time.Duration
	err    error
}

func ask(client *http.Client, url string) answer {
	start := time.Now()
	resp, err := client.Get(url)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, strings.TrimSpace(string(text)), time.Since(start), err}
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
