package workload

import (
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

func channelConfig(pending int, receive bool) string {
	return fmt.Sprintf("pending=%d/receive=%t", pending, receive)
}

// channels are timers that a select waits for, and that hardly ever come due.
func channels(size Size) Workload {
	sizes := pick(size, []int{0, 1_000_000}, []int{0, 100_000}, []int{0, 100})
	spell := pick(size, 150*time.Millisecond, 80*time.Millisecond, time.Millisecond)
	w := Workload{
		Name:  "Channels",
		Title: "Timers with a channel",
		Shows: "One goroutine makes a timer with a channel and stops it, beside so many pending timers " +
			"that run a function: with nobody receiving, which package time does not keep in its heap at " +
			"all, and with a select of the timer and a message from another goroutine, which comes first.",
		Rounds: pick(size, 5, 3, 1),
		Share:  pick(size, 20*time.Second, 4*time.Second, time.Second),
	}
	table := Table{Caption: "ns for each timer (ratio)"}
	for _, n := range sizes {
		w.Cases = append(w.Cases, Case{
			Name: pending(n), Configs: []string{channelConfig(n, false), channelConfig(n, true)},
			Timeout: 20 * time.Second, Without: only(subject.ChannelMaker),
			Run: func(s subject.Subject, emit Emit) { measureChannels(s, n, spell, emit) },
		})
		table.Columns = append(table.Columns,
			Column{Head: Count(n) + " pending", Config: channelConfig(n, false), Unit: "ns/op", Ratio: true},
			Column{Head: Count(n) + " pending, select", Config: channelConfig(n, true), Unit: "ns/op", Ratio: true})
	}
	table.Columns = append(table.Columns,
		Column{Head: "B", Config: channelConfig(0, false), Unit: "B/op"},
		Column{Head: "allocs", Config: channelConfig(0, false), Unit: "allocs/op"})
	w.Tables = []Table{table}
	w.Headlines = []Headline{{
		Work: "NewTimer, select and Stop, " + Count(sizes[1]) + " pending", Subject: "wheel.NewTimer",
		Config: channelConfig(sizes[1], true), Unit: "ns/op",
	}}
	return w
}

func measureChannels(s subject.Subject, n int, spell time.Duration, emit Emit) {
	t := s.New(subject.Options{}).(subject.Channels)
	fill(t, n)
	r := seeded(n)
	ops, values := timed(spell, func() { t.NewStop(farOff(r), nil) })
	emit(channelConfig(n, false), ops, n, values...)
	other := make(chan struct{})
	send := func() { other <- struct{}{} }
	first := func(timer <-chan time.Time) {
		go send()
		select {
		case <-timer:
		case <-other:
		}
	}
	ops, values = timed(spell, func() { t.NewStop(farOff(r), first) })
	emit(channelConfig(n, true), ops, n, values...)
}
