// Pool sends a burst of timers through goroutine pools of a few workers, one pool after
// the other. It shows what each pool does when it is full: how many tasks it ran, how
// many the driver had to run, how many were discarded, and how late they began.
//
//	go run .
//	go run ./examples/integrations/pool -tasks 5000 -workers 16 -queue 100 -work 500us -over 200ms
//
// The pools are github.com/panjf2000/ants/v2, plugged in with ExecutorFunc, and the
// library's own with each WhenFull. The exit status is 1 if a task was lost, and 2 for a
// bad flag. Ctrl-C ends it early, with status 130 (go run itself turns that into 1).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// load is what each pool gets to do.
type load struct {
	tasks          int
	over           time.Duration // the deadlines are spread over it
	work           time.Duration // what each task takes
	workers, queue int
}

func parse(args []string, stderr io.Writer) (*load, error) {
	l := new(load)
	flags := flag.NewFlagSet("pool", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&l.tasks, "tasks", 1000, "how many timers to start")
	flags.DurationVar(&l.over, "over", 50*time.Millisecond, "how long the burst is")
	flags.DurationVar(&l.work, "work", time.Millisecond, "how long each task takes")
	flags.IntVar(&l.workers, "workers", 8, "how many tasks a pool runs at once")
	flags.IntVar(&l.queue, "queue", 50, "how many more a pool takes before it is full")
	err := flags.Parse(args)
	switch {
	case err != nil:
		return nil, err
	case flags.NArg() > 0:
		err = fmt.Errorf("what is %q?", flags.Arg(0))
	case l.tasks < 1 || l.tasks > maxTasks:
		err = fmt.Errorf("-tasks must be from 1 to %d", maxTasks)
	case l.workers < 1:
		err = errors.New("-workers must be at least 1")
	case l.queue < 0 || l.over < 0 || l.work < 0:
		err = errors.New("-queue, -over and -work must not be negative")
	}
	if err != nil {
		fmt.Fprintln(stderr, "pool:", err)
		flags.Usage()
	}
	return l, err
}

const maxTasks = 10_000_000

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	l, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	fmt.Fprintf(stdout, "%d timers due within %v, each a task of %v; %d workers, room for %d to wait.\n\n",
		l.tasks, l.over, l.work, l.workers, l.queue)
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "pool\tby workers\tby the driver\tdiscarded\tlate p50\tp99\tmost\t")
	lost := false
	for _, c := range contestants {
		r, err := l.try(ctx, c)
		if ctx.Err() != nil {
			table.Flush()
			return 130
		} else if err != nil {
			fmt.Fprintf(stderr, "pool: %s: %v\n", c.name, err)
			return 1
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%v\t%v\t%v\t\n", c.name, r.byWorkers, r.byDriver, r.discarded,
			r.late(0.5), r.late(0.99), r.late(1))
		lost = lost || r.byWorkers+r.byDriver+r.discarded != l.tasks
	}
	table.Flush()
	if lost {
		fmt.Fprintln(stderr, "pool: tasks were lost, or run twice")
		return 1
	}
	return 0
}
