// Quorum answers writes when a majority of simulated replicas has acknowledged them, or a
// timeout has passed. Some replicas are slow, one loses acknowledgements, and for a third of the
// time so many are down that there is no majority.
//
//	go run ./examples/quorum
//	go run ./examples/quorum -rate 50000 -timeout 200ms
//
// A write that waits is parked at a threshold, the offset that a majority has. An
// acknowledgement raises it, and so touches those writes alone that it answers. Nothing
// here has a goroutine of its own but the writer: the trips of the replicas are on the
// wheel too.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/examples/internal/program"
	"github.com/tickwheel/tickwheel/examples/internal/table"
	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
)

var (
	rate    = flag.Int("rate", 10_000, "`writes` each second")
	timeout = flag.Duration("timeout", 300*time.Millisecond, "how long a write waits for a majority")
	last    = flag.Duration("for", 3*time.Second, "how long to write")
)

func main() { program.Main(run) }

func run(ctx context.Context, out io.Writer) error {
	wheel := timingwheel.New()
	defer wheel.Stop()
	c := newCluster(wheel, replicas(*last))
	c.start()

	var mu sync.Mutex // guards what follows
	var waiting sync.WaitGroup
	answers := map[purgatory.Outcome][]time.Duration{}
	made := 0
	ticker := wheel.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for began := time.Now(); time.Since(began) < *last && ctx.Err() == nil; <-ticker.C {
		for ; made < int(time.Since(began).Seconds()*float64(*rate)); made++ {
			waiting.Add(1)
			start := time.Now()
			err := c.write(*timeout, func(o purgatory.Outcome) { // here a server would send its response
				defer waiting.Done()
				mu.Lock()
				defer mu.Unlock()
				answers[o] = append(answers[o], time.Since(start))
			})
			if err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil {
		c.committed.Close() // answers the writes that wait
	}
	waiting.Wait()
	fmt.Fprintf(out, "%d writes = %d committed + %d expired + %d closed\n", made,
		len(answers[purgatory.Satisfied]), len(answers[purgatory.Expired]), len(answers[purgatory.Closed]))
	c.print(out)
	table.Heading(out)
	table.Row(out, "committed after", answers[purgatory.Satisfied])
	table.Row(out, "expired after", answers[purgatory.Expired])
	return ctx.Err()
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
