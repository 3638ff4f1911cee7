package workload

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// Fire is the name of the workload whose last firing and goroutines charts show.
const Fire = "Fire"

// Configurations of the workload Fire: when the tasks are due, and what they do.
const (
	FireSpread         = "due=spread/tasks=empty"
	FireTick           = "due=tick/tasks=empty"
	fireSpreadBlocking = "due=spread/tasks=1ms"
	fireTickBlocking   = "due=tick/tasks=1ms"
)

// fire is what it costs to run what has come due, and how long it takes.
func fire(size Size) Workload {
	most := pick(size, 1_000_000, 100_000, 200)
	w := Workload{
		Name:  Fire,
		Title: "Fire: " + Count(most) + " tasks",
		Shows: "All are started first, by one goroutine, and are due within " + fireSpread(size).String() + ", " +
			"or all at the same moment, some time after the last one has been started. The goroutine " +
			"reads the clock for each 64th only. An empty task adds one to a counter. CPU is of the " +
			"whole process (getrusage) for each task: with the adding, and of the firing alone. " +
			"Lateness, goroutines and memory are from a run of their own, in which each task reads the " +
			"clock (and each 64th the number of goroutines); it is that of all tasks, against the " +
			"deadline that was asked for. \"Last\" is when the last task ran, after the last deadline. " +
			"Memory is the peak of the process, some 60 bytes a task for the figures among it. Tasks of " +
			"1 ms are in time.Sleep, which is a timer of package time for every subject; package time " +
			"has them beside those that are measured.",
		Rounds: pick(size, 3, 1, 1),
		Share:  pick(size, 100*time.Second, 22*time.Second, time.Second),
	}
	for _, config := range []string{FireSpread, FireTick, fireSpreadBlocking, fireTickBlocking} {
		blocking := config == fireSpreadBlocking || config == fireTickBlocking
		if !blocking {
			w.Cases = append(w.Cases, fireCase(size, config, most, false))
		}
		w.Cases = append(w.Cases, fireCase(size, config, most, true))
	}
	w.Tables = fireTables(most, fireSpread(size))
	w.Headlines = []Headline{
		{
			Work: Count(most) + " due within " + fireSpread(size).String() + ": CPU of each, add included", Subject: "wheel.Schedule",
			Config: cpuOf(FireSpread), Unit: "cpu-ns/task",
		},
		{
			Work: Count(most) + " due at the same moment: the last one is late by", Subject: "wheel.Schedule",
			Config: FireTick, Unit: "last-ms",
		},
	}
	return w
}

func fireSpread(size Size) time.Duration {
	return pick(size, time.Second, 250*time.Millisecond, 20*time.Millisecond)
}

// cpuOf is the configuration of a run in which no task reads the clock.
func cpuOf(config string) string { return config + "/clock=unread" }

func fireCase(size Size, config string, most int, timed bool) Case {
	blocking := config == fireSpreadBlocking || config == fireTickBlocking
	c := Case{
		Name: config, Configs: []string{config},
		Timeout: pick(size, 20*time.Second, 8*time.Second, 8*time.Second),
		Without: func(s subject.Subject) string {
			if blocking && s.OneByOne && (inline(s) || config == fireTickBlocking) {
				return "tasks that are due together run one after the other: these would take " +
					(time.Duration(most) * time.Millisecond).String()
			}
			return firing(s)
		},
		Run: func(s subject.Subject, emit Emit) {
			b := newBurst(s, s.Bears(most), config, fireSpread(size))
			if timed {
				b.lateness(config, blocking, emit)
			} else {
				b.cpu(cpuOf(config), emit)
			}
		},
	}
	if blocking {
		c.Rounds = 1
	}
	if !timed {
		c.Name, c.Configs = cpuOf(config), []string{cpuOf(config)}
	}
	return c
}

// burst is a number of tasks that are all due some time from now.
type burst struct {
	timers subject.Timers
	n      int
	spread time.Duration // over which they are due
	done   atomic.Int64
}

func newBurst(s subject.Subject, n int, config string, spread time.Duration) *burst {
	b := &burst{timers: s.New(subject.Options{}), n: n}
	if config == FireSpread || config == fireSpreadBlocking {
		b.spread = spread
	}
	return b
}

// first returns when the first is due: when all have been started, to judge by
// what starting some takes, with room to spare.
func (b *burst) first() time.Time {
	trial := min(b.n, 10_000)
	start := time.Now()
	for range trial {
		b.timers.Add(time.Hour, noop)
	}
	each := time.Since(start) / time.Duration(trial)
	measure.Settle()
	return time.Now().Add(400*time.Millisecond + 3*each*time.Duration(b.n))
}

// due returns when the i-th is due.
func (b *burst) due(first time.Time, i int) time.Time {
	return first.Add(b.spread * time.Duration(i) / time.Duration(b.n))
}

// start starts them all, with the function that task returns for each.
func (b *burst) start(first time.Time, task func(i int, due time.Time) func()) {
	var now time.Time
	for i := range b.n {
		if i%64 == 0 {
			now = time.Now()
		}
		due := b.due(first, i)
		b.timers.Add(due.Sub(now), task(i, due))
	}
	if time.Now().After(first) {
		tooSlow("the first was due before the last had been started")
	}
}

// await waits until all have run, or for ten seconds after the last is due; it
// returns how many have not run.
func (b *burst) await(last time.Time) (lost int) {
	time.Sleep(time.Until(last))
	for time.Since(last) < 10*time.Second && b.done.Load() < int64(b.n) {
		time.Sleep(5 * time.Millisecond)
	}
	return b.n - int(b.done.Load())
}

func (b *burst) cpu(config string, emit Emit) {
	first := b.first()
	task := func() { b.done.Add(1) }
	before := measure.CPU()
	b.start(first, func(int, time.Time) func() { return task })
	started := measure.CPU()
	lost := b.await(b.due(first, b.n-1))
	after := measure.CPU()
	if lost > 0 {
		fail("%d of %d had not run 10 s after the last was due", lost, b.n)
	}
	emit(config, b.n, b.n,
		result.Value{Value: ns(after.CPU-before.CPU, b.n), Unit: "cpu-ns/task"},
		result.Value{Value: ns(after.CPU-started.CPU, b.n), Unit: "firing-cpu-ns/task"})
	runtime.KeepAlive(b.timers)
}

func (b *burst) lateness(config string, blocking bool, emit Emit) {
	late := make([]time.Duration, b.n)
	var latest atomic.Int64 // lateness of the last to run, after the last deadline
	var peak atomic.Int64
	first := b.first()
	last := b.due(first, b.n-1)
	b.start(first, func(i int, due time.Time) func() {
		return func() {
			late[i] = time.Since(due)
			if i%64 == 0 {
				raise(&peak, int64(runtime.NumGoroutine()))
			}
			if blocking {
				time.Sleep(time.Millisecond)
			}
			if b.done.Add(1) == int64(b.n) {
				latest.Store(int64(time.Since(last)))
			}
		}
	})
	if lost := b.await(last); lost > 0 {
		fail("%d of %d had not run 10 s after the last was due", lost, b.n)
	}
	slices.Sort(late)
	emit(config, b.n, b.n, append(quantiles(late),
		result.Value{Value: float64(latest.Load()) / 1e6, Unit: "last-ms"},
		result.Value{Value: float64(peak.Load()), Unit: "goroutines"},
		result.Value{Value: measure.PeakResident() / 1e6, Unit: "peak-MB"})...)
	runtime.KeepAlive(b.timers)
}

func raise(a *atomic.Int64, v int64) {
	for old := a.Load(); v > old && !a.CompareAndSwap(old, v); old = a.Load() {
	}
}

func fireTables(most int, spread time.Duration) []Table {
	latenessOf := func(config string) []Column {
		return []Column{
			{Head: "p50 ms", Config: config, Unit: "p50-ms"},
			{Head: "p99 ms", Config: config, Unit: "p99-ms"},
			{Head: "max ms", Config: config, Unit: "max-ms"},
			{Head: "early %", Config: config, Unit: "early-%"},
			{Head: "last ms", Config: config, Unit: "last-ms", Ratio: config == FireTick || config == fireTickBlocking},
			{Head: "goroutines", Config: config, Unit: "goroutines"},
			{Head: "memory MB", Config: config, Unit: "peak-MB"},
		}
	}
	withCPU := func(config string) []Column {
		return append([]Column{
			{Head: "CPU ns, add included (ratio)", Config: cpuOf(config), Unit: "cpu-ns/task", Ratio: true},
			{Head: "firing alone (ratio)", Config: cpuOf(config), Unit: "firing-cpu-ns/task", Ratio: true},
		}, latenessOf(config)...)
	}
	return []Table{
		{Caption: Count(most) + " due within " + spread.String() + ", empty tasks", Columns: withCPU(FireSpread)},
		{Caption: Count(most) + " due at the same moment, empty tasks", Columns: withCPU(FireTick)},
		{Caption: Count(most) + " due within " + spread.String() + ", tasks of 1 ms", Columns: latenessOf(fireSpreadBlocking)},
		{Caption: Count(most) + " due at the same moment, tasks of 1 ms", Columns: latenessOf(fireTickBlocking)},
	}
}
