// Retry makes thousands of calls at once to a local HTTP server that fails at first. It
// repeats the calls that failed, with exponential back-off and jitter, until each has
// succeeded or has used all its attempts. It ends with a summary.
//
//	go run ./examples/retry
//	go run ./examples/retry -calls 20000 -inflight 500 -limit 20s
//
// The wheel has the back-off of each call and the deadline of each attempt. A call that
// waits for its next attempt is an entry on the wheel, without a goroutine.
//
// The exit status is 0 if all went as promised, and 1 if not. It is also 1 if the time
// given by -limit was not enough, as on a busy machine; then what was pending is canceled,
// and the program says that no promise was broken. Ctrl-C cancels it
// too, with status 130 (go run itself turns that into 1).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	calls int
	limit time.Duration
	policy
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{policy: policy{backoff: backoff{random: rand.Float64}}}
	flags := flag.NewFlagSet("retry", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.calls, "calls", 5000, "how many calls to make")
	flags.IntVar(&o.inFlight, "inflight", 200, "how many attempts at a time, of two file descriptors each")
	flags.IntVar(&o.attempts, "attempts", 6, "how many attempts a call has")
	flags.DurationVar(&o.timeout, "timeout", 300*time.Millisecond, "how long an attempt may take")
	flags.DurationVar(&o.backoff.base, "base", 50*time.Millisecond, "how long at most to wait after the first failure")
	flags.DurationVar(&o.backoff.cap, "cap", 400*time.Millisecond, "how long at most to wait after any failure")
	flags.DurationVar(&o.limit, "limit", 5*time.Second, "how long all of it may take")
	err := flags.Parse(args)
	switch {
	case err != nil:
		return nil, err
	case flags.NArg() > 0:
		err = fmt.Errorf("what is %q?", flags.Arg(0))
	case min(o.calls, o.inFlight, o.attempts) < 1:
		err = errors.New("-calls, -inflight and -attempts must be at least 1")
	case min(o.timeout, o.backoff.base, o.limit) <= 0 || o.backoff.cap < o.backoff.base:
		err = errors.New("-timeout, -base and -limit must be positive, and -cap not less than -base")
	}
	if err != nil {
		fmt.Fprintln(stderr, "retry:", err)
		flags.Usage()
	}
	return o, err
}

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	server, err := startServer()
	if err != nil {
		fmt.Fprintln(stderr, "retry:", err)
		return 1
	}
	defer server.close()
	transport := &http.Transport{MaxIdleConnsPerHost: o.inFlight}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}

	// Inline, since what runs on the wheel only moves a call to the queue.
	wheel := timingwheel.New(timingwheel.WithExecutor(timingwheel.Inline()))
	defer wheel.Stop()
	limited, cancel := wheel.WithTimeout(ctx, o.limit)
	defer cancel()

	fmt.Fprintf(stdout, "%d calls to %s, at most %d in flight\n", o.calls, server.url, o.inFlight)
	start := time.Now()
	r := newRetrier(limited, wheel, o.policy)
	for id := range o.calls {
		r.call(func(ctx context.Context) error { return get(ctx, client, server.callURL(id)) })
	}
	result := r.wait()
	took := time.Since(start)
	cancel() // takes the limit off the wheel
	result.print(stdout, took, wheel.Len())

	broken := result.broken(o, wheel.Len())
	switch {
	case ctx.Err() != nil:
		return 130
	case len(broken) > 0:
		for _, promise := range broken {
			fmt.Fprintln(stderr, "retry: promise broken:", promise)
		}
		return 1
	case result.canceled > 0:
		fmt.Fprintf(stderr, "retry: not done after %v: no promise is broken, but this machine is too busy for so short a -limit\n", o.limit)
		return 1
	}
	return 0
}

// get is one attempt.
func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil { // or else the connection is not used again
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}
