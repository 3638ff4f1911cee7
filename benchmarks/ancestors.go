package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// peerColumn is a column of the tables of the folder peers.
type peerColumn struct{ title, config, unit string }

var (
	peerCosts = []peerColumn{
		{"add, cancel: none pending", "add0", "cpu-ns/op"},
		{"1 M pending", "add1M", "cpu-ns/op"},
		{"cancel at random, add", "random", "cpu-ns/op"},
		{"on two threads", "threads", "cpu-ns/op"},
		{"1 M due in a second", "fire", "cpu-ns/timer"},
		{"firing alone", "fire", "firing-ns/timer"},
	}
	peerPromises = []peerColumn{
		{"p99 late, ms", "fire", "p99-ms"},
		{"last late, ms", "fire", "last-ms"},
		{"early of 20,000", "early", "early"},
		{"B each", "memory", "B/timer"},
		{"MB left of 1 M canceled", "left", "MB"},
		{"idle, ms/s", "idle", "cpu-ms/s"},
		{"idle, 1 M pending, ms/s", "idle1M", "cpu-ms/s"},
	}
)

// writePeers writes the section on the systems of the folder peers, if they were measured.
func writePeers(page *strings.Builder, out string) error {
	r, err := read(filepath.Join(out, "peers", "results.txt"))
	if r == nil || err != nil {
		return err
	}
	fmt.Fprintf(page, peersHead, r.about["go"], r.about["versions"], r.about["date"], r.about["load"])
	page.WriteString("\nProcessor time of the whole process, in ns:\n")
	r.writePeerTable(page, peerCosts)
	page.WriteString("\nLateness, memory, and processor time while nothing is due:\n")
	r.writePeerTable(page, peerPromises)
	page.WriteString(peersFoot)
	for _, c := range []struct{ file, title, config, unit string }{
		{"peers-random.svg", "A cancel at random among 1 M and an add: ns of processor time", "random", "cpu-ns/op"},
		{"peers-idle.svg", "1 M pending, none due: ms of processor time a second", "idle1M", "cpu-ms/s"},
	} {
		if err := r.bars(filepath.Join(out, "results", c.file), c.title, c.config, c.unit); err != nil {
			return err
		}
		fmt.Fprintf(page, "\n![%s](results/%s)\n", c.title, c.file)
	}
	return nil
}

func (r *results) writePeerTable(page *strings.Builder, columns []peerColumn) {
	page.WriteString("\n| |")
	for _, c := range columns {
		fmt.Fprintf(page, " %s |", c.title)
	}
	fmt.Fprintf(page, "\n| --- |%s\n", strings.Repeat(" ---: |", len(columns)))
	for _, s := range r.subjects {
		fmt.Fprintf(page, "| %s |", s)
		for _, c := range columns {
			fmt.Fprintf(page, " %s |", r.spread(figure{c.config, s, c.unit}))
		}
		page.WriteString("\n")
	}
}

// bars draws the medians of one figure, the first subject at the top. A subject that goes far
// beyond the others would leave no room for their differences: its bar ends at the edge, and its
// name has the figure.
func (r *results) bars(file, title, config, unit string) error {
	const edge = 5000 // ns or ms
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text, p.X.Min = title, 0
	var values plotter.Values
	var names []string
	for i := len(r.subjects) - 1; i >= 0; i-- {
		m, _, ok := r.medianOf(figure{config, r.subjects[i], unit})
		if !ok {
			continue
		}
		values = append(values, min(m, edge))
		names = append(names, r.subjects[i]+": "+number(m))
	}
	if len(values) == 0 {
		return nil
	}
	chart, err := plotter.NewBarChart(values, vg.Points(12))
	if err != nil {
		return err
	}
	chart.Horizontal, chart.Color, chart.LineStyle.Width = true, colors[1], 0
	p.Add(chart)
	p.NominalY(names...)
	return p.Save(7*vg.Inch, 3.5*vg.Inch, file)
}

const peersHead = `
## Ancestors

The timers of Java and C that a reader may know, measured by ` + "`make bench-peers`" + `:
%s, %s.
On %s, the load before was %s. Each workload of each system had a process of its own, and the systems
followed each other in each round. In a run two hours before, the range of the rounds overlapped with this one's in each of
126 figures. A figure is the median of the rounds; after ± stands how far the farthest
round is from it. Processor time is that of all threads, including the JIT and the collectors; a warm-up
comes before and does not count. The JDK reports it in steps of 10 ms, so its idle figures have steps of
7 ms/s.

They are not alike:

| | functions run on | threads | unit of delays |
| --- | --- | --- | --- |
| wheel.Schedule | goroutines of an executor | may share it | 1 ms, rounded up |
| wheel.Schedule+Inline | the wheel's goroutine | may share it | 1 ms, rounded up |
| time.AfterFunc | a goroutine each | may share it | 1 ns |
| netty (HashedWheelTimer) | the timer's thread | may share it: adds and cancels go through a queue | a tick: 1 ms here, 100 ms by default |
| jdk.Scheduled (ScheduledThreadPoolExecutor) | the one thread of the pool | may share it: one lock | 1 ns |
| jdk.Scheduled+remove | the same | the same; a canceled task leaves the heap at once | 1 ns |
| jdk.Timer (java.util.Timer) | the timer's thread | may share it: one lock | 1 ms |
| libuv | the loop's thread | only the loop's: no locks | 1 ms |
| libevent | the loop's thread | only the loop's here: no locks | 1 us |
| timerfd | the loop's thread | the kernel locks; each timer is an open file, so 15,000 stand for 1 M and for 20,000 | 1 ns |

A system with whole milliseconds gets delays that are rounded up. libevent reads the clock in microseconds, so a
timer of it can be early by less than one. The handles are in arrays that were there
before, so the bytes are those of the timers: in Go and Java those that are reachable, in C those of malloc;
a timerfd's are the kernel's, and not counted.
`

const peersFoot = `
The wheel loses to netty in firing; netty pays for it when timers are canceled at random, and while it is idle.
With one thread and few pending timers, libuv and libevent cost less than the wheel or the same, since they lock
nothing.

Profiles of wheel.Schedule in a program of its own, without the adds, divide the processor time of firing about so:
the move of each entry to the finest level 13 %, taking it out and freeing it 15 %, the hand-over to the executor
15 %, running the function 10 %, sleep and waking 20 %, the collector 20 %, the accounts less than 2 %. Netty's
entries never move and its functions run on its own thread, so a slow function delays all others; the row with
Inline has no hand-over either.

Kafka's timer is not in Debian, and so not in the tables. In an earlier trial 2,031 to 7,465 of 20,000 of its timers
ran early.
`
