package workload

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// mix is a service at a steady load: most timers are canceled, some are pushed
// back, few fire.
func mix(size Size) Workload {
	rate := pick(size, 50_000, 50_000, 1000)
	spell := pick(size, 5*time.Second, 1500*time.Millisecond, 50*time.Millisecond)
	longest := pick(size, 2*time.Second, 500*time.Millisecond, 30*time.Millisecond)
	const config = "load=steady"
	return Workload{
		Name:  "Mix",
		Title: "A realistic mix",
		Shows: fmt.Sprintf("For %v one goroutine starts %s timers a second, with log-normal delays "+
			"(median 300 ms, sigma 1, at most %v). 70 %% are canceled before they are due, 20 %% are "+
			"reset to as long again from then and canceled later, 10 %% fire. All is planned "+
			"beforehand, the same for every subject, and carried out in a batch for each millisecond. "+
			"CPU is the process's for each timer started, all that fire included. The row of the subject "+
			"none is the generator's share of it; net is without that, and its ratio is that of the net "+
			"figures. Who has no Reset cancels and adds. Memory is the peak of the process, the plan "+
			"included.", spell-longest, Count(rate), longest),
		Rounds: pick(size, 3, 1, 1),
		Share:  pick(size, 170*time.Second, 18*time.Second, time.Second),
		Cases: []Case{{
			Name: config, Configs: []string{config},
			Timeout: spell + 25*time.Second,
			Without: loaded,
			Run: func(s subject.Subject, emit Emit) {
				rate := rate
				if s.Most > 0 {
					rate = min(rate, s.Most/10) // which keeps as many pending as it bears
				}
				runMix(s, config, rate, plan(rate, spell-longest, longest), emit)
			},
		}},
		Tables: []Table{{Caption: fmt.Sprintf("%s timers a second", Count(rate)), Columns: []Column{
			{Head: "CPU ns a timer, net (ratio)", Config: config, Unit: "cpu-ns/timer", Ratio: true, Net: true},
			{Head: "gross (ratio)", Config: config, Unit: "cpu-ns/timer", Ratio: true},
			{Head: "late p50 ms", Config: config, Unit: QuantileUnit(50)},
			{Head: "p99 ms", Config: config, Unit: QuantileUnit(99)},
			{Head: "max ms", Config: config, Unit: "max-ms"},
			{Head: "early %", Config: config, Unit: "early-%"},
			{Head: "memory MB", Config: config, Unit: "peak-MB"},
		}}},
		Headlines: []Headline{
			{
				Work: "a realistic mix: CPU of a timer, net", Subject: "wheel.Schedule",
				Config: config, Unit: "cpu-ns/timer", Net: true,
			},
			{
				Work: "the same with Inline", Subject: "wheel.Schedule+Inline",
				Config: config, Unit: "cpu-ns/timer", Net: true,
			},
		},
	}
}

type action int8

const (
	start action = iota
	startToFire
	reset
	cancel
)

// step is one thing to do to one timer.
type step struct {
	at    time.Duration // since the begin
	delay time.Duration
	timer int32
	action
}

// plan returns the steps, in order: timers are started for a spell.
func plan(rate int, spell, longest time.Duration) []step {
	r := seeded(rate)
	n := int(float64(rate) * spell.Seconds())
	var steps []step
	for i := range n {
		at := spell * time.Duration(i) / time.Duration(n)
		delay := time.Duration(300 * float64(time.Millisecond) * math.Exp(r.NormFloat64()))
		delay = min(max(delay, time.Millisecond), longest)
		part := func() time.Duration { return time.Duration(0.9 * r.Float64() * float64(delay)) }
		s := step{at: at, delay: delay, timer: int32(i), action: start}
		switch fate := r.IntN(10); {
		case fate < 7:
			steps = append(steps, s, step{at: at + part(), timer: s.timer, action: cancel})
		case fate < 9:
			pushed := at + part()
			steps = append(steps, s, step{at: pushed, delay: delay, timer: s.timer, action: reset},
				step{at: pushed + part(), timer: s.timer, action: cancel})
		default:
			s.action = startToFire
			steps = append(steps, s)
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	return slices.Clip(steps)
}

// load carries a plan out.
type load struct {
	timers  subject.Timers
	late    []time.Duration // of each timer that has fired, by its number
	latest  time.Time       // the last deadline of those that are to fire
	started int
	firing  int
	fired   atomic.Int64
}

func (l *load) carryOut(steps []step) {
	begin := time.Now()
	for _, s := range steps {
		if ahead := time.Until(begin.Add(s.at)); ahead > 0 {
			time.Sleep(max(ahead, time.Millisecond))
		}
		l.do(s)
	}
}

func (l *load) do(s step) {
	i := int(s.timer)
	switch s.action {
	case start:
		l.started++
		l.timers.Set(i, s.delay, noop)
	case startToFire:
		l.started++
		l.firing++
		due := time.Now().Add(s.delay)
		if due.After(l.latest) {
			l.latest = due
		}
		l.timers.Set(i, s.delay, func() {
			l.late[i] = time.Since(due)
			l.fired.Add(1)
		})
	case reset:
		if l.timers.CanReset() {
			l.timers.Reset(i, s.delay)
		} else {
			l.timers.Cancel(i)
			l.timers.Set(i, s.delay, noop)
		}
	case cancel:
		l.timers.Cancel(i)
	}
}

func runMix(s subject.Subject, config string, rate int, steps []step, emit Emit) {
	const unfired = time.Duration(math.MinInt64)
	n := len(steps) // more than there are timers
	l := &load{timers: s.New(subject.Options{}), late: slices.Repeat([]time.Duration{unfired}, n)}
	l.timers.Keep(n)
	measure.Settle()
	before := measure.CPU()
	l.carryOut(steps)
	if s.Name != subject.None {
		for end := l.latest.Add(5 * time.Second); l.fired.Load() < int64(l.firing); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				fail("%d of %d had not run 5 s after the last was due", l.firing-int(l.fired.Load()), l.firing)
			}
		}
	}
	after := measure.CPU()
	values := []result.Value{
		{Value: ns(after.CPU-before.CPU, l.started), Unit: "cpu-ns/timer"},
		{Value: measure.PeakResident() / 1e6, Unit: "peak-MB"},
	}
	if late := slices.DeleteFunc(l.late, func(d time.Duration) bool { return d == unfired }); len(late) > 0 {
		slices.Sort(late)
		values = append(values, quantiles(late)...)
	}
	emit(config, l.started, rate, values...)
	runtime.KeepAlive(l.timers)
}
