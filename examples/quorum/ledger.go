package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/examples/internal/table"
	"github.com/tickwheel/tickwheel/purgatory"
)

// ledger makes writes, and has what became of each.
type ledger struct {
	*cluster
	timeout time.Duration

	mu         sync.Mutex // guards what follows
	made       int64
	refused    int
	answers    [purgatory.Closed + 1]int
	twice      int
	unfounded  int             // committed without a majority
	took       []time.Duration // from the write until it was committed
	late       []time.Duration // by how much the others expired after the timeout
	answeredBy map[int64]bool
}

// write makes writes until the time is over, or ctx ends: those of a millisecond
// together.
func (l *ledger) write(ctx context.Context, set settings) {
	ticker := l.wheel.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for began := time.Now(); time.Since(began) < set.last; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		due := int64(time.Since(began).Seconds() * float64(set.rate))
		for l.made < due {
			l.writeOne()
		}
	}
}

func (l *ledger) writeOne() {
	l.mu.Lock()
	l.made++
	end := l.made // there is one writer, so that this is the offset
	l.mu.Unlock()
	made := time.Now()
	err := l.cluster.write(l.timeout, func(o purgatory.Outcome) {
		l.answer(end, o, time.Since(made))
	})
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.refused++
	}
}

// answer is where a server would send its response.
func (l *ledger) answer(end int64, o purgatory.Outcome, took time.Duration) {
	has := l.has(end)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answeredBy == nil {
		l.answeredBy = map[int64]bool{}
	}
	if l.answeredBy[end] {
		l.twice++
	}
	l.answeredBy[end] = true
	l.answers[o]++
	switch o {
	case purgatory.Satisfied:
		l.took = append(l.took, took)
		if has < l.majority {
			l.unfounded++
		}
	case purgatory.Expired:
		l.late = append(l.late, took-l.timeout)
	}
}

func (l *ledger) waiting() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made - int64(len(l.answeredBy)) - int64(l.refused)
}

// settle waits until every write is answered, which at the latest it is after the
// timeout.
func (l *ledger) settle(ctx context.Context) {
	for l.waiting() > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// report prints the accounts, and returns what was not as promised.
func (l *ledger) report(out io.Writer) (problems []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(out, "%d writes = %d committed + %d expired + %d closed + %d refused\n\n", l.made,
		l.answers[purgatory.Satisfied], l.answers[purgatory.Expired], l.answers[purgatory.Closed], l.refused)
	l.reportReplicas(out)
	table.Heading(out)
	table.Row(out, "committed after", l.took)
	table.Row(out, "expired late", l.late)
	fmt.Fprintln(out)
	if answered := int64(len(l.answeredBy) + l.refused); answered != l.made {
		problems = append(problems, fmt.Sprintf("%d writes, and %d answered or refused", l.made, answered))
	}
	if l.twice > 0 {
		problems = append(problems, fmt.Sprintf("%d writes were answered twice", l.twice))
	}
	if l.unfounded > 0 {
		problems = append(problems, fmt.Sprintf("%d writes were answered as committed without a majority", l.unfounded))
	}
	if len(l.late) > 0 && slices.Min(l.late) < 0 {
		problems = append(problems, "a write expired early")
	}
	return problems
}

func (l *ledger) reportReplicas(out io.Writer) {
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	for _, r := range l.replicas {
		fmt.Fprintf(out, "replica %-6s has %d; %d trips of %v or so, %d acknowledgements lost, %d trips while it was down\n",
			r.name, r.acknowledged, r.fetches, r.trip, r.lost, r.whileDown)
	}
}
