package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// result is what became of the calls.
type result struct {
	succeeded, gaveUp, canceled int
	canceledOnWheel             int // of the canceled, those that waited there
	timedOut                    int // attempts
	mostInFlight                int
	calls                       []int           // by the number of their attempts
	late                        []time.Duration // by how much the wheel was, for each retry
	queued                      []time.Duration // how long each retry then waited for a worker
}

func (r *result) attempts() (sum int) {
	for n, calls := range r.calls {
		sum += n * calls
	}
	return sum
}

func (r *result) print(out io.Writer, took time.Duration, pending int) {
	fmt.Fprintf(out, "%d succeeded, %d gave up after %d attempts, %d canceled (%d of them on the wheel)\n",
		r.succeeded, r.gaveUp, len(r.calls)-1, r.canceled, r.canceledOnWheel)
	fmt.Fprintf(out, "%d attempts, %d of them over their deadline; at most %d in flight\n\n", r.attempts(), r.timedOut, r.mostInFlight)
	fmt.Fprintln(out, "attempts  calls")
	for n, calls := range r.calls {
		if n > 0 || calls > 0 { // canceled before the first
			bar := strings.Repeat("#", 40*calls/max(1, slices.Max(r.calls)))
			fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("%8d %6d  %s", n, calls, bar), " "))
		}
	}
	fmt.Fprintf(out, "\n%d retries, each later than planned by %s\n", len(r.late), spread(r.late))
	fmt.Fprintf(out, "and then in the queue for %s\n", spread(r.queued))
	fmt.Fprintf(out, "it took %v, and left %d on the wheel\n", took.Round(time.Millisecond), pending)
}

// spread describes the values, and sorts them for that.
func spread(all []time.Duration) string {
	n := len(all)
	if n == 0 {
		return "nothing"
	}
	slices.Sort(all)
	round := func(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
	return fmt.Sprintf("min %v, median %v, p99 %v, max %v", round(all[0]), round(all[n/2]), round(all[n*99/100]), round(all[n-1]))
}

// broken returns the promises that were not kept. Slowness breaks none: an attempt may
// exceed its deadline because the machine is busy.
func (r *result) broken(o *options, pending int) (broken []string) {
	promise := func(kept bool, what string, args ...any) {
		if !kept {
			broken = append(broken, fmt.Sprintf(what, args...))
		}
	}
	ended := r.succeeded + r.gaveUp + r.canceled
	promise(ended == o.calls, "%d calls, and %d have ended", o.calls, ended)
	promise(pending == 0, "%d left on the wheel", pending)
	promise(r.mostInFlight <= o.inFlight, "%d in flight, and not %d", r.mostInFlight, o.inFlight)
	promise(len(r.late) == 0 || slices.Min(r.late) >= 0, "a retry was early")
	promise(r.canceled > 0 || len(r.late) == r.attempts()-o.calls, "%d retries, but %d attempts", len(r.late), r.attempts())

	hopeless := 0
	for id := range o.calls {
		if failures(id) >= o.policy.attempts {
			hopeless++
		}
	}
	promise(r.gaveUp >= hopeless-r.canceled, "%d calls are hopeless, and %d gave up", hopeless, r.gaveUp)
	return broken
}
