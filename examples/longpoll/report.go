package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/examples/internal/table"
	"github.com/tickwheel/tickwheel/purgatory"
)

// report prints what the readers saw, and returns what was not as promised.
func (l *load) report(out io.Writer) (problems []string) {
	var late, expired []time.Duration
	closed, failed, behind := 0, 0, 0
	var failure error
	for _, r := range l.readers {
		late = append(late, r.late...)
		expired = append(expired, r.expired...)
		if r.closed {
			closed++
		}
		if r.failed != nil {
			failed, failure = failed+1, r.failed
		} else if r.received != l.posted[r.topic] {
			behind++
		}
	}
	posted := 0
	for _, n := range l.posted {
		posted += n
	}
	fmt.Fprintf(out, "\n%d messages posted, %d delivered; %d polls expired; %d readers were waiting in the end and answered\n",
		posted, len(late), len(expired), closed)
	table.Heading(out)
	table.Row(out, "delivered late", late)
	table.Row(out, "expired late", expired)
	if failed > 0 {
		problems = append(problems, fmt.Sprintf("%d readers have failed, one with: %v", failed, failure))
	}
	if behind > 0 {
		problems = append(problems, fmt.Sprintf("%d readers have not received all messages", behind))
	}
	if len(expired) > 0 && slices.Min(expired) < 0 {
		problems = append(problems, "a poll expired early")
	}
	return problems
}

func printStats(out io.Writer, st purgatory.Stats) {
	fmt.Fprintf(out, "\npolls: %d = %d satisfied (%d of them at once) + %d expired + %d canceled + %d closed + %d parked; %d questions\n",
		st.Parked, st.Satisfied, st.Immediate, st.Expired, st.Canceled, st.Closed, st.Pending, st.Checks)
}
