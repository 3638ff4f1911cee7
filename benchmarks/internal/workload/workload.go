// Package workload holds what is measured: one file for each workload, each with
// the sizes it runs at, the code that measures, and the tables that show it.
package workload

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// Size is how much of a workload is run.
type Size int

const (
	Full  Size = iota // what the results are of
	Quick             // the same in little: all of it, with less weight to each figure
	Tiny              // for tests: it works, and the figures mean nothing
)

// pick returns the value for the size.
func pick[T any](size Size, full, quick, tiny T) T { return [...]T{full, quick, tiny}[size] }

// Workload is a question, and the cases that answer it.
type Workload struct {
	Name  string // in benchmark names
	Title string
	Shows string // what the figures mean, and what is fair about them; in Markdown
	// Rounds is how often each case runs on each subject, if time allows. A second
	// or later round begins only if it will end within the Shares of this workload
	// and those before it: what one does not use is there for the next.
	Rounds int
	Share  time.Duration
	Cases  []Case
	Tables []Table
	// Headlines are what the summary shows of it.
	Headlines []Headline
}

// Case runs in a process of its own for each subject and round.
type Case struct {
	Name    string   // among those of its workload
	Configs []string // of the lines that it gives
	Procs   int      // GOMAXPROCS; zero means as many as the machine has
	Rounds  int      // in so many rounds at most; zero means in all
	// Together is set if the case does nothing but wait, so that the subjects can
	// run at the same time without disturbing each other.
	Together bool
	Timeout  time.Duration // after which it has hung
	// Without returns why a subject cannot take part, or "".
	Without func(subject.Subject) string
	Run     func(subject.Subject, Emit)
}

// Emit takes a measurement of n operations, with so many timers involved. The
// tables show the number where a subject has been given fewer than others.
type Emit func(config string, n, timers int, values ...result.Value)

// TimersUnit is the unit of the number of timers.
const TimersUnit = "timers"

// Table has a row for each subject.
type Table struct {
	Caption string
	Columns []Column
}

// Column shows the median of one unit for one configuration.
type Column struct {
	Head   string
	Config string
	Unit   string
	// Else is the configuration to show for subjects that have none of Config,
	// such as those without a tick in a table of one tick.
	Else  string
	Ratio bool   // with the ratio to the subject's baseline in the same round
	Over  string // show instead the ratio to this configuration of the same subject
	// Net shows the figure less that of the subject None in the same round, which is
	// the load generator's own.
	Net bool
}

// Headline is a row of the summary: what the wheel and its baseline need for some
// work. It is shown as a column of the wheel's subject would be.
type Headline struct {
	Work    string // "1 M pending: add and cancel"
	Subject string // of the wheel
	Config  string
	// BaselineConfig is that of the baseline, if it is another than Config.
	BaselineConfig string
	Unit           string
	Net            bool
}

// All returns the workloads in the order of the results.
func All(size Size) []Workload {
	return []Workload{
		addCancel(size), parallel(size), memory(size), fire(size), lateness(size),
		idle(size), connections(size), sessions(size), accepted(size), requests(size),
		contexts(size), channels(size), tickers(size), jobs(size), keys(size), parking(size),
		sparse(size), atOnce(size), crowd(size), stall(size), mix(size), ticks(size), server(size),
	}
}

// Find returns a case.
func Find(size Size, workload, name string) (Case, error) {
	for _, w := range All(size) {
		for _, c := range w.Cases {
			if w.Name == workload && c.Name == name {
				return c, nil
			}
		}
	}
	return Case{}, fmt.Errorf("no case %s of workload %s", name, workload)
}

// inline are the rows that differ from others only once something fires.
func inline(s subject.Subject) bool {
	return s.Name == "wheel.Schedule+Inline" || s.Name == "wheel.AfterFunc+Inline"
}

// precise is the row that differs from others only in when things fire.
func precise(s subject.Subject) bool { return s.Name == "wheel.Schedule+Precise" }

// A Failure ends a case on a subject: something that it should have done did not
// happen.
type Failure string

func (f Failure) Error() string { return FailurePrefix + string(f) }

// FailurePrefix begins the text of each Failure, which tells it from a crash.
const FailurePrefix = "workload failed: "

func fail(format string, args ...any) { panic(Failure(fmt.Sprintf(format, args...))) }

// TooSlow begins the reason of a Failure that is not the subject's: the machine was busy
// with something else. Another attempt may do better.
const TooSlow = "the load generator was too slow, on a busy machine: "

func tooSlow(format string, args ...any) { fail(TooSlow+format, args...) }

// NotHere is the reason of subjects that have nothing to show in a workload, and
// no row in its tables.
const NotHere = "not of this workload"

// only returns a Without that leaves out all but the subjects of a kind.
func only(kind subject.Kind) func(subject.Subject) string {
	return func(s subject.Subject) string {
		if s.Kind != kind {
			return NotHere
		}
		return ""
	}
}

// timersOnly leaves out all but timers that run a function, and with nothing that
// fires the inline and precise rows.
func timersOnly(s subject.Subject) string {
	if s.Kind != subject.Functions || inline(s) || precise(s) {
		return NotHere
	}
	return ""
}

// firing is for workloads in which every timer fires, and when is not the point.
func firing(s subject.Subject) string {
	if s.Kind != subject.Functions || s.Name == subject.None || precise(s) {
		return NotHere
	}
	return ""
}

// loaded is for workloads in which few of many timers fire, and the generator's own
// share is measured too.
func loaded(s subject.Subject) string {
	if s.Name == subject.None {
		return ""
	}
	return firing(s)
}

func noop() {}

// farOff is a delay that does not come due: from a minute to a day.
func farOff(r *rand.Rand) time.Duration {
	return time.Minute + time.Duration(r.Int64N(int64(24*time.Hour-time.Minute)))
}

// seeded returns the same numbers for every subject and round.
func seeded(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 2026)) }

// fill starts n timers that do not come due, from all processors, so that they
// are spread over the heaps of package time and the shards of a wheel.
func fill(t subject.Timers, n int) {
	var wg sync.WaitGroup
	procs := runtime.GOMAXPROCS(0)
	for p := range procs {
		wg.Go(func() {
			r := seeded(p)
			for range n*(p+1)/procs - n*p/procs {
				t.Add(farOff(r), noop)
			}
		})
	}
	wg.Wait()
}

// Count writes a number of timers for a reader: 10 k, 1 M.
func Count(n int) string {
	switch {
	case n >= 1_000_000 && n%100_000 == 0:
		return strconv.FormatFloat(float64(n)/1e6, 'f', -1, 64) + " M"
	case n >= 1000 && n%100 == 0:
		return strconv.FormatFloat(float64(n)/1e3, 'f', -1, 64) + " k"
	}
	return strconv.Itoa(n)
}

func ns(d time.Duration, n int) float64 { return float64(d) / float64(n) }
