// Retry makes thousands of calls at once to a local HTTP server that fails at first. It
// repeats the calls that failed, with exponential back-off and jitter, until each has
// succeeded or has used all its attempts.
//
//	go run ./examples/retry
//	go run ./examples/retry -calls 20000 -limit 20s
//
// The wheel has the back-off of each call and the deadline of each attempt. A call that
// waits for its next attempt is an entry on the wheel, without a goroutine. Ctrl-C and the end
// of -limit cancel what is pending.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/examples/internal/fetch"
	"github.com/tickwheel/tickwheel/examples/internal/program"
	"github.com/tickwheel/tickwheel/examples/internal/table"
	"github.com/tickwheel/tickwheel/timingwheel"
)

var (
	calls = flag.Int("calls", 5000, "`calls` to make")
	limit = flag.Duration("limit", time.Minute, "how long all of it may take")
	p     = policy{inFlight: 200, attempts: 6, timeout: 300 * time.Millisecond,
		backoff: backoff{base: 50 * time.Millisecond, cap: 400 * time.Millisecond, random: rand.Float64}}
)

func main() { program.Main(run) }

func run(ctx context.Context, out io.Writer) error {
	server := httptest.NewServer(failing())
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: p.inFlight}}
	defer client.CloseIdleConnections()

	// Inline, since what runs on the wheel only moves a call to the queue.
	wheel := timingwheel.New(timingwheel.WithExecutor(timingwheel.Inline()))
	defer wheel.Stop()
	ctx, cancel := wheel.WithTimeout(ctx, *limit)
	defer cancel()

	fmt.Fprintf(out, "%d calls, at most %d in flight\n", *calls, p.inFlight)
	r := newRetrier(ctx, wheel, p)
	for id := range *calls {
		r.call(func(ctx context.Context) error { return fetch.Get(ctx, client, fmt.Sprintf("%s/%d", server.URL, id)) })
	}
	result := r.wait()
	fmt.Fprintf(out, "%d succeeded, %d gave up after %d attempts, %d were canceled\n\nattempts  calls\n",
		result.succeeded, result.gaveUp, p.attempts, result.canceled)
	for n, calls := range result.calls {
		fmt.Fprintf(out, "%8d %6d\n", n, calls)
	}
	table.Heading(out)
	table.Row(out, "retries later than planned", result.late)
	return ctx.Err()
}

// failing returns a server of which every call fails up to three times, and one in a hundred
// always.
func failing() http.Handler {
	var mu sync.Mutex
	seen := map[string]int{} // attempts, by call
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.URL.Path]++
		n := seen[r.URL.Path]
		mu.Unlock()
		var id int
		fmt.Sscanf(r.URL.Path, "/%d", &id)
		if n <= failures(id) {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		}
	})
}

// failures returns how many attempts of a call fail.
func failures(id int) int {
	if id%100 == 99 {
		return 1 << 30
	}
	return id % 4
}
