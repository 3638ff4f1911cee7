// Pool sends a burst of timers through goroutine pools of a few workers, one pool after
// the other. It shows what each pool does when it is full: how many tasks it ran, how
// many the driver had to run, how many the pool refused and goroutines of the wheel ran,
// how many were discarded, and how late they began.
//
//	go run .
//	go run ./examples/integrations/pool -tasks 5000 -workers 16 -queue 100 -work 500us -over 200ms
//
// The pools are github.com/panjf2000/ants/v2, plugged in with SubmitFunc, and the
// library's own with each WhenFull. Ctrl-C ends it early.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/tickwheel/tickwheel/examples/internal/program"
)

var (
	tasks   = flag.Int("tasks", 1000, "how many timers to start")
	over    = flag.Duration("over", 50*time.Millisecond, "how long the burst is")
	work    = flag.Duration("work", time.Millisecond, "how long each task takes")
	workers = flag.Int("workers", 8, "how many tasks a pool runs at once")
	queue   = flag.Int("queue", 50, "how many more a pool takes before it is full")
)

func main() { program.Main(run) }

func run(ctx context.Context, out io.Writer) error {
	switch {
	case *tasks < 1 || *workers < 1:
		return errors.New("-tasks and -workers must be at least 1")
	case *queue < 0 || *over < 0 || *work < 0:
		return errors.New("-queue, -over and -work must not be negative")
	}
	fmt.Fprintf(out, "%d timers due within %v, each a task of %v; %d workers, room for %d to wait.\n\n",
		*tasks, *over, *work, *workers, *queue)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer table.Flush()
	fmt.Fprintln(table, "pool\tby workers\tby the driver\trefused\tdiscarded\tlate p50\tp99\tmost\t")
	for _, c := range contestants {
		r, err := try(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%v\t%v\t%v\t\n", c.name, r.byWorkers, r.byDriver, r.refused, r.discarded,
			r.late(0.5), r.late(0.99), r.late(1))
		if r.byWorkers+r.byDriver+r.refused+r.discarded != *tasks {
			return fmt.Errorf("%s: tasks were lost, or run twice", c.name)
		}
	}
	return nil
}
