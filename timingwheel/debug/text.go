package debug

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// answer is what the text and JSON forms are made of.
type answer struct {
	Wheels []sample           `json:"wheels"`
	Pools  []poolFigures      `json:"pools"`
	Parked []purgatoryFigures `json:"purgatories"`
}

// serve takes samples of the wheel of that name, or of all there is if the name is empty,
// and answers with what write makes of them.
func (h *Handler) serve(rw http.ResponseWriter, r *http.Request, name, contentType string, write func(io.Writer, answer)) {
	all := h.list()
	if name != "" {
		all = shows{wheels: slices.DeleteFunc(all.wheels, func(w *wheel) bool { return w.name != name })}
		if len(all.wheels) == 0 {
			http.Error(rw, "no wheel of that name", http.StatusNotFound)
			return
		}
	}
	rw.Header().Set("Content-Type", contentType)
	if r.Method == http.MethodHead {
		return // without a pass over the wheels
	}
	a := answer{Wheels: []sample{}}
	for _, w := range all.wheels {
		a.Wheels = append(a.Wheels, w.sample())
	}
	a.Pools, a.Parked = figuresOf(all.pools), figuresOfPurgatories(all.parked)
	write(rw, a)
}

func (h *Handler) serveJSON(rw http.ResponseWriter, r *http.Request, name string) {
	h.serve(rw, r, name, "application/json", func(out io.Writer, a answer) {
		text, err := json.Marshal(a)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		out.Write(append(text, '\n'))
	})
}

func (h *Handler) serveText(rw http.ResponseWriter, r *http.Request, name string) {
	h.serve(rw, r, name, "text/plain; charset=utf-8", func(out io.Writer, a answer) {
		if len(a.Wheels) == 0 {
			fmt.Fprintln(out, "no wheels")
		}
		for i, s := range a.Wheels {
			if i > 0 {
				fmt.Fprintln(out)
			}
			writeText(out, s)
		}
		writeAll(out, a.Pools, writePool)
		writeAll(out, a.Parked, writePurgatory)
	})
}

// writeAll writes what there is, after an empty line.
func writeAll[F any](out io.Writer, all []F, write func(io.Writer, F)) {
	for i, f := range all {
		if i == 0 {
			fmt.Fprintln(out)
		}
		write(out, f)
	}
}

// writeText writes a sample for a reader at a terminal. The name is quoted, because it
// may contain control sequences, which a terminal would obey.
func writeText(out io.Writer, s sample) {
	stats := &s.Stats
	fmt.Fprintf(out, "%q: %d pending", s.Name, stats.Pending)
	if stats.Closed {
		fmt.Fprint(out, ", stopped")
	}
	fmt.Fprintf(out, ", made %v ago, tick %v, shards %d", short(stats.Now), stats.Tick, stats.Shards)
	if stats.Precise {
		fmt.Fprint(out, ", precise wake-ups")
	}
	fmt.Fprintln(out)
	if stats.HeldUp >= time.Second {
		fmt.Fprintf(out, "held up for %v by %q\n", short(stats.HeldUp), stats.HeldUpBy)
	}

	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\nscheduled\texpired\tstopped\thanded back\treset\tcascaded\trejected\tcaller runs\tdiscarded\trefused\tpanicked\twaiting for room\tin executor\twake-ups\t")
	fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n",
		stats.Scheduled, stats.Expired, stats.Stopped, stats.HandedBack, stats.Reset, stats.Cascaded, stats.Rejected,
		stats.CallerRuns, stats.Discarded, stats.Refused, stats.Panicked, stats.Waiting, stats.Running, stats.Wakeups)
	fmt.Fprintln(table, "\nslot\tring\tslots\thand at\tbuckets\tentries\tcascaded\t")
	for _, l := range s.Snapshot.Levels {
		fmt.Fprintf(table, "%v\t%v\t%d\t%v\t%d\t%d\t%d\t\n",
			short(l.Tick), short(l.Interval), l.Slots, short(l.CurrentTime), l.Buckets, l.Entries, l.Cascaded)
	}
	table.Flush()

	fmt.Fprintf(out, "\nlateness since the start: %s\n", lateness(&stats.Lateness))
	if s.Recent.Span > 0 {
		fmt.Fprintf(out, "lateness of the last %v: %s\n", s.Recent.Span.Round(time.Second/10), lateness(&s.Recent.Lateness))
	} else {
		fmt.Fprintln(out, "lateness of the last minute: this is the first sample; ask again")
	}
	fmt.Fprintf(out, "next: %s\n", cmp.Or(strings.Join(next(s), ", "), "none"))
}

// next says when the next deadlines are. Moments that read the same are one.
func next(s sample) (lines []string) {
	last, n := "", 0
	end := func() {
		if n > 0 {
			lines = append(lines, fmt.Sprintf("%d %s", n, last))
		}
	}
	for _, m := range moments(s.Snapshot.Next, s.now) {
		when := fmt.Sprintf("in %v", short(m.In))
		if m.In <= 0 {
			when = fmt.Sprintf("overdue by up to %v", short(-m.In))
		}
		if when != last {
			end()
			last, n = when, 0
		}
		n += m.N
	}
	end()
	return lines
}

func lateness(h *timingwheel.Histogram) string {
	if h.Total() == 0 {
		return "nothing has expired"
	}
	return fmt.Sprintf("p50 %v, p99 %v, max %v", short(h.Quantile(0.5)), short(h.Quantile(0.99)), short(h.Max))
}

// short rounds d to four digits.
func short(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d.Abs()/10000 >= unit { // 10000*unit could overflow, and the loop would never end
		unit *= 10
	}
	return d.Round(unit)
}
