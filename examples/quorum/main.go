// Quorum has a leader answer writes when a majority of simulated replicas has
// acknowledged them, or a timeout has passed. Some replicas are slow, one loses
// acknowledgements, and for a third of the time so many are down that there is no
// majority. In the end it gives an account of every write.
//
//	go run ./examples/quorum
//	go run ./examples/quorum -rate 50000 -timeout 200ms
//
// A write that waits is parked at a threshold, the offset that a majority has. An
// acknowledgement raises it, and so touches those writes alone that it answers. Nothing
// here has a goroutine of its own but the writer: the trips of the replicas are on the
// wheel too.
//
// The exit status is 0 if every write was answered once, none as committed that no
// majority had, and none expired early; 1 if not; 2 for bad flags; and 130 after Ctrl-C,
// which ends the writing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// settings are the flags.
type settings struct {
	rate    int
	timeout time.Duration
	last    time.Duration
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
	wheel := timingwheel.New()
	defer wheel.Stop()
	c := newCluster(wheel, replicas(set.last))
	c.start()
	l := &ledger{cluster: c, timeout: set.timeout}
	l.write(ctx, set)
	waiting, goroutines := l.waiting(), runtime.NumGoroutine()
	l.settle(ctx)
	c.committed.Close() // answers those who still wait, after Ctrl-C
	problems := l.report(stdout)
	fmt.Fprintf(stdout, "%d writes were waiting when the last was made, and there were %d goroutines\n", waiting, goroutines)
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "quorum: interrupted")
		return 130
	}
	for _, p := range problems {
		fmt.Fprintln(stderr, "quorum:", p)
	}
	return min(len(problems), 1)
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var set settings
	flags := flag.NewFlagSet("quorum", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&set.rate, "rate", 10_000, "`writes` each second")
	flags.DurationVar(&set.timeout, "timeout", 300*time.Millisecond, "how long a write waits for a majority")
	flags.DurationVar(&set.last, "for", 3*time.Second, "how long to write")
	if err := flags.Parse(args); err != nil {
		return set, err
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case set.rate < 1 || set.rate > 1_000_000:
		err = fmt.Errorf("-rate %d is not from 1 to 1000000", set.rate)
	case set.timeout <= 0 || set.last <= 0:
		err = errors.New("-timeout and -for must be positive")
	}
	if err != nil {
		fmt.Fprintln(stderr, "quorum:", err)
		flags.Usage()
	}
	return set, err
}

// replicas returns four, which with the leader are five. In the middle third of the time
// the fast ones are down, and then there is no majority.
func replicas(last time.Duration) []*replica {
	return []*replica{
		{name: "fast", trip: 2 * time.Millisecond, from: last / 3, until: last * 2 / 3},
		{name: "lossy", trip: 4 * time.Millisecond, loses: 0.3, from: last / 3, until: last * 2 / 3},
		{name: "slow", trip: 50 * time.Millisecond},
		{name: "dead", trip: 5 * time.Millisecond, until: 1<<63 - 1},
	}
}
