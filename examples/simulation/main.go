// Simulation lets the users of a web service log in, click and go away again for a day, on
// a wheel in virtual time. A session ends when its user has not clicked for a while. Each
// hour of the virtual day prints a line, and the last lines say how long the day took in
// real time, and how many timers that were.
//
//	go run ./examples/simulation                      # 100,000 users, a day
//	go run ./examples/simulation -users 1000 -for 720h
//
// The same -seed gives the same day. The exit status is 0 if every session ended when it
// had to, 1 if not, 2 for bad flags, and 130 after Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// settings are the flags.
type settings struct {
	users int
	last  time.Duration
	limit time.Duration
	seed  uint64
}

// run is the program, and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	set, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // parse has said why
	}
	start := time.Now()
	s := newSimulation(set, stdout)
	defer s.wheel.Stop()
	for passed := time.Duration(0); passed < set.last; passed += time.Hour {
		if ctx.Err() != nil {
			fmt.Fprintln(stderr, "simulation: interrupted")
			return 130
		}
		s.wheel.Advance(min(time.Hour, set.last-passed))
	}
	return s.report(time.Since(start), stderr)
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var set settings
	flags := flag.NewFlagSet("simulation", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&set.users, "users", 100_000, "`users` of the service")
	flags.DurationVar(&set.last, "for", 24*time.Hour, "virtual time to go through")
	flags.DurationVar(&set.limit, "idle", 30*time.Minute, "time without a click after which a session ends")
	flags.Uint64Var(&set.seed, "seed", 1, "`number` that chooses the day")
	if err := flags.Parse(args); err != nil {
		return set, err
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case set.users < 1:
		err = fmt.Errorf("-users %d is not positive", set.users)
	case set.last <= 0:
		err = fmt.Errorf("-for %v is not positive", set.last)
	case set.limit <= 0:
		err = fmt.Errorf("-idle %v is not positive", set.limit)
	}
	if err != nil {
		fmt.Fprintln(stderr, "simulation:", err)
		flags.Usage()
	}
	return set, err
}
