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
	w := Workload{
		Name:  "Mix",
		Title: "A realistic mix",
		Shows: fmt.Sprintf("For %v one goroutine starts %s timers a second, with log-normal delays "+
			"(median 300 ms, sigma 1, at most %v). 70 %% are canceled before they are due, 20 %% are "+
			"reset to as long again from then and canceled later, 10 %% fire. All is planned "+
			"beforehand, the same for every subject, and carried out in a batch for each millisecond. "+
			"CPU is the whole process's for each timer started, the generator and all that fire included. "+
			"Most of it is the generator and the scheduler, which subjects share and change: so there are "+
			"two generators. One is a goroutine that sleeps by time.Sleep, whose end is a timer of the "+
			"runtime, which wakes the process for the subject too. The other has a thread of its own and "+
			"sleeps in the system, so the subject wakes for itself alone; the other libraries are left "+
			"out there. Net is without the row of the "+
			"subject none, and takes what they share for the generator's. Who has no Reset cancels and "+
			"adds. Memory is the peak of the process, the plan included.", spell-longest, Count(rate), longest),
		Rounds: pick(size, 3, 1, 1),
		Share:  pick(size, 160*time.Second, 30*time.Second, time.Second),
	}
	for _, g := range generators {
		w.Cases = append(w.Cases, Case{
			Name: g.config, Configs: []string{g.config},
			Timeout: spell + 25*time.Second,
			Without: g.without,
			Run: func(s subject.Subject, emit Emit) {
				rate := rate
				if s.Most > 0 {
					rate = min(rate, s.Most/10) // which keeps as many pending as it bears
				}
				steps := plan(rate, spell-longest, longest)
				g.do(func() { runMix(s, subject.Options{}, g.config, rate, steps, g.sleep, emit) })
			},
		})
		w.Tables = append(w.Tables, Table{
			Caption: fmt.Sprintf("%s timers a second, from a generator that sleeps %s", Count(rate), g.where),
			Columns: []Column{
				{Head: "CPU ns a timer (ratio)", Config: g.config, Unit: "cpu-ns/timer", Ratio: true},
				{Head: "net (ratio)", Config: g.config, Unit: "cpu-ns/timer", Ratio: true, Net: true},
				{Head: "late p50 ms", Config: g.config, Unit: QuantileUnit(50)},
				{Head: "p99 ms", Config: g.config, Unit: QuantileUnit(99)},
				{Head: "max ms", Config: g.config, Unit: "max-ms"},
				{Head: "early %", Config: g.config, Unit: "early-%"},
				{Head: "memory MB", Config: g.config, Unit: "peak-MB"},
			},
		})
		w.Headlines = append(w.Headlines, Headline{
			Work: "a realistic mix, a generator that sleeps " + g.where + ": CPU of a timer", Subject: "wheel.Schedule",
			Config: g.config, Unit: "cpu-ns/timer",
		}, Headline{
			Work: "the same with Inline", Subject: "wheel.Schedule+Inline", Config: g.config, Unit: "cpu-ns/timer",
		})
	}
	return w
}

// generator is what carries a plan out: how it sleeps decides who wakes the process.
type generator struct {
	config string
	where  string
	sleep  func(time.Duration)
	do     func(run func())
	// without leaves out the rivals where the time of a run is better spent on rounds.
	without func(subject.Subject) string
}

var generators = []generator{goroutineGenerator, threadGenerator}

var goroutineGenerator = generator{
	config: "load=steady", where: "in the runtime", sleep: time.Sleep, do: func(run func()) { run() },
	without: loaded,
}

// threadGenerator leaves the runtime's timers and its scheduler to the subject.
var threadGenerator = generator{
	config: "load=steady/generator=thread", where: "in the system", sleep: measure.Sleep, do: onThread,
	without: func(s subject.Subject) string {
		if slices.Contains(rivals, s.Name) {
			return NotHere
		}
		return loaded(s)
	},
}

var rivals = []string{"RussellLuo", "go-zero", "gost"}

// onThread calls run on a thread that no other goroutine runs on.
func onThread(run func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	run()
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
	sleep   func(time.Duration)
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
			l.sleep(max(ahead, time.Millisecond))
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

func runMix(s subject.Subject, o subject.Options, config string, rate int, steps []step, sleep func(time.Duration), emit Emit) {
	const unfired = time.Duration(math.MinInt64)
	n := len(steps) // more than there are timers
	l := &load{timers: s.New(o), sleep: sleep, late: slices.Repeat([]time.Duration{unfired}, n)}
	l.timers.Keep(n)
	measure.Settle()
	before := measure.CPU()
	l.carryOut(steps)
	if s.Name != subject.None {
		for end := l.latest.Add(5 * time.Second); l.fired.Load() < int64(l.firing); sleep(5 * time.Millisecond) {
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
