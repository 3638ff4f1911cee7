package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/examples/internal/table"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// count prints how many connections there were, and what became of them.
func (c *client) count(last time.Duration) {
	var opened, closed [2]int // idle, busy
	for _, conn := range c.conns {
		kind := 0
		if conn.busy {
			kind = 1
		}
		if conn.failed == nil {
			opened[kind]++
		}
		if conn.closed {
			closed[kind]++
		}
	}
	fmt.Fprintf(c.out, "\n%-30s %9s %9s %9s\n", "", "opened", "closed", "survived")
	for kind, name := range []string{"idle", "busy"} {
		fmt.Fprintf(c.out, "%-30s %9d %9d %9d\n", name, opened[kind], closed[kind], opened[kind]-closed[kind])
	}
}

// report prints how late the idle connections were closed, as the client sees it. It
// returns what was not as promised.
func (c *client) report() (problems []string) {
	var late []time.Duration
	var failed, early, disturbed, left int
	var first error
	var overdue, stall time.Duration // the longest of those that are left, and of package time
	for _, conn := range c.conns {
		switch {
		case conn.failed != nil:
			failed++
			if first == nil {
				first = conn.failed
			}
		case conn.closed && conn.silent < c.limit:
			early++
		case conn.closed && conn.busy:
			disturbed++
		case !conn.closed && !conn.busy:
			left++
			overdue = max(overdue, conn.silent-c.limit)
		}
		stall = max(stall, conn.stall)
		if conn.closed && !conn.busy {
			late = append(late, conn.silent-c.limit)
		}
	}
	table.Row(c.out, "closed late, client's view", late)
	problem := func(n int, format string, args ...any) {
		if n > 0 {
			problems = append(problems, fmt.Sprintf("%d of %d connections ", n, len(c.conns))+fmt.Sprintf(format, args...))
		}
	}
	problem(failed, "could not be opened: %v", first)
	problem(early, "were closed early")
	problem(disturbed, "were closed though busy, none early: this machine was too slow to keep them busy")
	why := ""
	if stall > overdue/4 { // a wheel waits for the same processors
		why = fmt.Sprintf(": this machine was too slow, where a sleep of package time took %v longer", table.Short(stall))
	}
	problem(left, "were idle, and not closed%s", why)
	return problems
}

// report prints how late the idle connections were closed, as the server sees it, and
// what the timers cost. It returns what was not as promised. It is called after stop.
func (s *server) report(out io.Writer, perTimer int64) (problems []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	table.Row(out, "closed late, server's view", s.late)
	table.Row(out, "time that a Reset took", s.took)
	left := s.wheel.Len()
	fmt.Fprintf(out, `
The server counts from when it read a message, the client from before it sent it.
%d connections accepted, %d closed for being idle, %d timers left on the wheel.
%d Resets; one in %d was timed, with a reading of the clock in it.
A pending timer takes %d bytes, its closure not counted (heap with %d of them, collected).
`, s.accepted, len(s.late), left, s.resets.Load(), sampled, perTimer, weighed)
	if left > 0 {
		problems = append(problems, fmt.Sprintf("%d timers are left on the wheel", left))
	}
	if len(s.late) > 0 && slices.Min(s.late) < 0 {
		problems = append(problems, "the server closed a connection early")
	}
	return problems
}

// weighed is the number of timers that bytesPerTimer weighs.
const weighed = 10_000

// bytesPerTimer weighs timers on a wheel of their own, before anything else can make the
// heap grow. The wheel itself is included.
func bytesPerTimer() int64 {
	before := heap()
	w := timingwheel.New()
	defer w.Stop()
	for range weighed {
		if _, err := w.Schedule(time.Hour, func() {}); err != nil {
			panic(err) // the wheel is new, and has no limit
		}
	}
	return (heap() - before) / weighed
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
