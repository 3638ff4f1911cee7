// Simulation lets the users of a web service log in, click and go away again for a day, on
// a wheel in virtual time. A session ends when its user has not clicked for a while. Each
// hour of the virtual day prints a line, and the last lines say how long the day took in
// real time, and how many timers that were.
//
//	go run ./examples/simulation                      # 100,000 users, a day
//	go run ./examples/simulation -users 1000 -for 720h
//
// The same -seed gives the same day. The exit status is 1 if a session did not end when it had to.
package main

import (
	"context"
	"flag"
	"io"
	"time"

	"github.com/tickwheel/tickwheel/examples/internal/program"
)

var (
	users = flag.Int("users", 100_000, "`users` of the service")
	last  = flag.Duration("for", 24*time.Hour, "virtual time to go through")
	idle  = flag.Duration("idle", 30*time.Minute, "time without a click after which a session ends")
	seed  = flag.Uint64("seed", 1, "`number` that chooses the day")
)

func main() { program.Main(run) }

func run(ctx context.Context, out io.Writer) error {
	start := time.Now()
	s := newSimulation(*users, *idle, *seed, out)
	defer s.wheel.Stop()
	for passed := time.Duration(0); passed < *last && ctx.Err() == nil; passed += time.Hour {
		s.wheel.Advance(min(time.Hour, *last-passed))
	}
	s.print(time.Since(start))
	if err := s.check(); err != nil {
		return err
	}
	return ctx.Err()
}
