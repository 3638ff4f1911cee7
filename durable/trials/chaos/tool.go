//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// callers is how many operators there are in a process of the role tool.
const callers = 4

// useTool has operators beside what runs: they list, look up, cancel, move and redrive.
func (w *world) useTool(end time.Time) error {
	w.env = []string{envFail + "=10", envDead + "=50", envMoved + "=1"}
	if err := w.startAll(); err != nil {
		return err
	}
	if err := w.startClient("tool", "tool"); err != nil {
		return err
	}
	for w.r.Provoked == 0 || time.Now().Before(end) {
		w.r.Provoked++
		if w.pg == nil {
			time.Sleep(time.Second)
		} else if err := w.lockTable(); err != nil {
			return err
		}
	}
	return nil
}

// operate is what the operators do, until ctx ends.
func operate(ctx context.Context, q *durable.Queue, e driver.Engine, l *ledger) {
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for ctx.Err() == nil {
				list(ctx, q, func(i durable.Info) { act(ctx, q, e, l, i) })
				time.Sleep(rand.N(200 * time.Millisecond))
			}
		})
	}
	wg.Wait()
}

// list calls f for some of the jobs of any state or of one.
func list(ctx context.Context, q *durable.Queue, f func(durable.Info)) {
	filter := durable.Filter{State: durable.State(rand.N(int(durable.Dead) + 1))}
	n := 0
	for info, err := range q.All(ctx, filter) {
		if err != nil || n > 2000 {
			return
		}
		if n++; rand.N(20) == 0 {
			f(info)
		}
	}
}

// act does one thing to a job. What it is told may be wrong by now, so that most errors
// are answers as good as any; what is promised is in the ledgers.
func act(ctx context.Context, q *durable.Queue, e driver.Engine, l *ledger, i durable.Info) {
	ref := i.Ref
	switch rand.N(6) {
	case 0:
		cancel(q, l, ref)
	case 1:
		q.Get(ctx, ref)
	case 2:
		now, _, err := e.Now(ctx)
		if err == nil {
			q.Reschedule(ctx, ref, now.Add(rand.N(3*time.Second)))
		}
	case 3:
		e.Lookup(ctx, fmt.Sprint(rand.N(1000)))
	default:
		q.Redrive(ctx, ref)
	}
}
