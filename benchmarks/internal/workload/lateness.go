package workload

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// Lateness is the name of the workload whose distribution a chart shows.
const Lateness = "Lateness"

// Ticks and rates of the workload Lateness.
var (
	latenessTicks = []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond}
	latenessRates = []int{1_000, 10_000, 100_000}
)

// LatenessOf is a configuration of the workload Lateness. A tick of zero is that
// of subjects that have none to choose.
func LatenessOf(rate int, tick time.Duration) string {
	if tick == 0 {
		return fmt.Sprintf("rate=%d/tick=none", rate)
	}
	return fmt.Sprintf("rate=%d/tick=%v", rate, tick)
}

// Quantiles are the percentiles that a distribution of lateness is kept as.
var Quantiles = []float64{1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9}

// QuantileUnit is the unit of a percentile.
func QuantileUnit(p float64) string { return "p" + strconv.FormatFloat(p, 'f', -1, 64) + "-ms" }

// quantiles describes lateness, sorted.
func quantiles(sorted []time.Duration) []result.Value {
	values := []result.Value{{Value: measure.Ms(sorted[0]), Unit: "min-ms"}}
	for _, p := range Quantiles {
		values = append(values, result.Value{Value: measure.Ms(measure.Percentile(sorted, p)), Unit: QuantileUnit(p)})
	}
	return append(values,
		result.Value{Value: measure.Ms(sorted[len(sorted)-1]), Unit: "max-ms"},
		result.Value{Value: measure.Early(sorted), Unit: "early-%"})
}

const alone = "alone=10s"

// lateness is how far from their deadlines tasks run.
func lateness(size Size) Workload {
	ticks := pick(size, latenessTicks, latenessTicks, []time.Duration{time.Millisecond})
	rates := pick(size, latenessRates, []int{10_000}, []int{1000})
	spell := pick(size, time.Second, 500*time.Millisecond, 20*time.Millisecond)
	longest := pick(size, time.Second, 500*time.Millisecond, 30*time.Millisecond)
	wait := pick(size, 10*time.Second, 2*time.Second, 20*time.Millisecond)
	w := Workload{
		Name:  Lateness,
		Title: "Lateness",
		Shows: fmt.Sprintf("For %v timers are started at a steady rate, in a batch for each millisecond, "+
			"with delays uniform from 1 to %d ms. Lateness is when the task runs less the deadline that "+
			"was asked for: the time just before its start plus the delay. Below zero is early. Subjects "+
			"that round deadlines up to a tick are late by half a tick on average; such that round down "+
			"are early as often as late, which is no virtue. The generator sleeps between batches, and "+
			"what it takes from the two processors at 100 k a second is in the lateness of all. Subjects "+
			"that have no tick to choose have the same rows in each table of a rate (Precise has ticks of "+
			"100 us in all of them); ticks other than 1 ms are run once. wheel.AfterFunc fires as wheel.Schedule does, and is left out. CPU is the "+
			"process's for each timer, the generator's part included: that of a finer tick. The last "+
			"table is one timer of %v in a process that does nothing else; all subjects wait at the same "+
			"time, started 50 ms after each other.", spell, longest.Milliseconds(), wait),
		Rounds: pick(size, 2, 1, 1),
		Share:  pick(size, 120*time.Second, 22*time.Second, time.Second),
	}
	for _, rate := range rates {
		w.Cases = append(w.Cases, latenessCase(size, rate, 0, spell, longest))
		for _, tick := range ticks {
			w.Cases = append(w.Cases, latenessCase(size, rate, tick, spell, longest))
			w.Tables = append(w.Tables, latenessTable(rate, tick))
		}
	}
	w.Cases = append(w.Cases, aloneCase(wait))
	middle := rates[len(rates)/2]
	w.Headlines = []Headline{
		{
			Work: Count(middle) + " timers a second, ticks of 1 ms: lateness, p99", Subject: "wheel.Schedule",
			Config: LatenessOf(middle, time.Millisecond), BaselineConfig: LatenessOf(middle, 0), Unit: QuantileUnit(99),
		},
		{
			Work: "the same with WithPreciseWakeups and ticks of 100 us", Subject: "wheel.Schedule+Precise",
			Config: LatenessOf(middle, 0), Unit: QuantileUnit(99),
		},
	}
	w.Tables = append(w.Tables, Table{
		Caption: fmt.Sprintf("one timer of %v, idle process", wait),
		Columns: []Column{{Head: "late ms", Config: alone, Unit: "late-ms"}},
	})
	return w
}

func latenessTable(rate int, tick time.Duration) Table {
	t := Table{Caption: fmt.Sprintf("%s timers a second, ticks of %v", Count(rate), tick)}
	column := func(head, unit string) {
		t.Columns = append(t.Columns, Column{Head: head, Config: LatenessOf(rate, tick), Else: LatenessOf(rate, 0), Unit: unit})
	}
	column("min ms", "min-ms")
	for _, p := range []float64{50, 99, 99.9} {
		column("p"+strconv.FormatFloat(p, 'f', -1, 64)+" ms", QuantileUnit(p))
	}
	column("max ms", "max-ms")
	column("early %", "early-%")
	column("CPU ns a timer", "cpu-ns/timer")
	return t
}

func latenessCase(size Size, rate int, tick, spell, longest time.Duration) Case {
	config := LatenessOf(rate, tick)
	rounds := 0
	if tick != 0 && tick != time.Millisecond {
		rounds = 1
	}
	return Case{
		Name: config, Configs: []string{config}, Rounds: rounds,
		Timeout: pick(size, 15*time.Second, 8*time.Second, 8*time.Second),
		Without: func(s subject.Subject) string {
			switch {
			case (s.FinestTick == 0) != (tick == 0) || s.Kind != subject.Functions || s.Name == subject.None:
				return NotHere
			case s.Name == "wheel.AfterFunc" || s.Name == "wheel.AfterFunc+Inline":
				return NotHere // fires as wheel.Schedule does
			case tick != 0 && tick < s.FinestTick:
				return fmt.Sprintf("its finest tick is %v", s.FinestTick)
			case rate > 10_000 && s.Most > 0 && s.Most < 100_000:
				return "more pending than it bears: " + s.Why
			}
			return ""
		},
		Run: func(s subject.Subject, emit Emit) {
			late, cpu := steady(s.New(subject.Options{Tick: tick}), rate, spell, longest)
			emit(config, len(late), 0, append(quantiles(late), result.Value{Value: ns(cpu, len(late)), Unit: "cpu-ns/timer"})...)
		},
	}
}

// steady starts timers at a rate and returns how late they ran, sorted, and the processor
// time of all, the generator's included.
func steady(t subject.Timers, rate int, spell, longest time.Duration) (late []time.Duration, cpu time.Duration) {
	late = make([]time.Duration, int(float64(rate)*spell.Seconds()))
	var done atomic.Int64
	r := seeded(rate)
	measure.Settle()
	before := measure.CPU()
	begin := before.Time
	for i := range late {
		if ahead := time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate))); ahead > 0 {
			time.Sleep(max(ahead, time.Millisecond))
		}
		d := time.Millisecond + time.Duration(r.Int64N(int64(longest-time.Millisecond)))
		due := time.Now().Add(d)
		t.Add(d, func() {
			late[i] = time.Since(due)
			done.Add(1)
		})
	}
	for end := time.Now().Add(longest + 5*time.Second); done.Load() < int64(len(late)); {
		if time.Now().After(end) {
			fail("%d of %d had not run 5 s after the last was due", len(late)-int(done.Load()), len(late))
		}
		time.Sleep(5 * time.Millisecond)
	}
	after := measure.CPU()
	runtime.KeepAlive(t)
	slices.Sort(late)
	return late, after.CPU - before.CPU
}

// aloneCase is one timer in a process that does nothing else.
func aloneCase(wait time.Duration) Case {
	return Case{
		Name: alone, Configs: []string{alone}, Rounds: 1, Together: true,
		Timeout: wait + 5*time.Second,
		Without: func(s subject.Subject) string {
			if precise(s) {
				return ""
			}
			return firing(s)
		},
		Run: func(s subject.Subject, emit Emit) {
			t := s.New(subject.Options{})
			measure.Settle()
			// Not in phase with a tick, in which some subjects would be lucky.
			time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Millisecond))))
			done := make(chan time.Duration)
			due := time.Now().Add(wait)
			t.Add(wait, func() { done <- time.Since(due) })
			emit(alone, 1, 1, result.Value{Value: measure.Ms(<-done), Unit: "late-ms"})
		},
	}
}
