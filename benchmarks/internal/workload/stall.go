package workload

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// stall is what a wheel's callers and timers feel while it moves millions of timers from
// a coarse bucket to finer ones.
func stall(size Size) Workload {
	l := stallLoad{
		most: pick(size, 4_000_000, 500_000, 100),
		tick: time.Millisecond,
		// The slots give the span of a coarse bucket, and the spans the time to start all.
		slots:  pick(size, 512, 512, 64),
		spans:  pick(size, 8, 4, 12),
		window: pick(size, 150*time.Millisecond, 50*time.Millisecond, 20*time.Millisecond),
		adds:   pick(size, 4<<20, 2<<20, 1<<18),
	}
	span := l.span()
	const chosen, one = "shards=chosen", "shards=1"
	w := Workload{
		Name:  "Stall",
		Title: "Callers and timers beside a cascade",
		Shows: fmt.Sprintf("On wheels of %d slots of %v, %s timers are due within a moment, so that they lie in "+
			"one coarse bucket, which is moved to the finer wheel when its span of %v begins. For %v from "+
			"that moment on, one goroutine adds and cancels, and each add is timed; twice a millisecond it "+
			"also starts a timer of 1 to 10 ms, which is in no cascade, and whose lateness is noted. \"Quiet\" "+
			"is the same a moment before, with as many pending. go-zero has no coarse wheels: it walks the "+
			"slot in which they lie once a round. Package time and the heap have no cascade. What is noted "+
			"has its memory beforehand; collections says how often the collector has come all the same. Two "+
			"processors are shared by the adder and the driver, and on a machine that has other things to "+
			"do the longest add may be the system's doing. With one shard an adder has no other to turn to. A "+
			"timer of the first millisecond may be started before the driver has woken: then it lies in the "+
			"bucket that is moved, at its end, and three of these are the 99th percentile.",
			l.slots, l.tick, Count(l.most), span, l.window),
		Rounds: pick(size, 3, 1, 1),
		Share:  pick(size, 110*time.Second, 30*time.Second, time.Second),
		Headlines: []Headline{
			{Work: "an add while " + Count(l.most) + " cascade: p99.9", Subject: "wheel.Schedule", Config: chosen, Unit: "p99.9-us"},
			{Work: "a timer of its own then: lateness, p99", Subject: "wheel.Schedule", Config: chosen, Unit: "late-p99-ms"},
		},
	}
	for _, config := range []string{chosen, one} {
		c := Case{
			Name: config, Configs: []string{config}, Rounds: 0,
			Timeout: time.Duration(l.spans)*span + 40*time.Second,
			Without: func(s subject.Subject) string {
				switch {
				case config == one && !strings.HasPrefix(s.Name, "wheel.Schedule"):
					return NotHere
				case s.Name == "gost":
					return "its slots are minutes and hours, and its first cascade comes after a minute"
				}
				return loaded(s)
			},
			Run: func(s subject.Subject, emit Emit) {
				l := l
				if config == one {
					l.shards = 1
				}
				if s.Most > 0 {
					l.most = min(l.most, s.Most/5) // to be started before the cascade begins
				}
				l.run(s, config, emit)
			},
		}
		w.Cases = append(w.Cases, c)
		w.Tables = append(w.Tables, stallTables(config)...)
	}
	return w
}

func stallTables(config string) []Table {
	with := ""
	if config == "shards=1" {
		with = ", one shard"
	}
	return []Table{
		{Caption: "microseconds of an add" + with, Columns: []Column{
			{Head: "quiet p50", Config: config, Unit: "quiet-p50-us"},
			{Head: "quiet p99.9", Config: config, Unit: "quiet-p99.9-us"},
			{Head: "p50", Config: config, Unit: "p50-us"},
			{Head: "p99.9 (ratio)", Config: config, Unit: "p99.9-us", Ratio: true},
			{Head: "longest (ratio)", Config: config, Unit: "max-us", Ratio: true},
			{Head: "adds", Config: config, Unit: "adds"},
			{Head: "collections", Config: config, Unit: "collections"},
		}},
		{Caption: "lateness of single timers, ms" + with, Columns: []Column{
			{Head: "quiet p50", Config: config, Unit: "quiet-late-p50-ms"},
			{Head: "quiet p99", Config: config, Unit: "quiet-late-p99-ms"},
			{Head: "p50", Config: config, Unit: "late-p50-ms"},
			{Head: "p99 (ratio)", Config: config, Unit: "late-p99-ms", Ratio: true},
			{Head: "longest", Config: config, Unit: "late-max-ms"},
		}},
	}
}

type stallLoad struct {
	most, slots, spans, shards int
	tick, window               time.Duration
	adds                       int // of which there is room for notes
}

// span is that of a coarse bucket: a whole round of the finer wheel.
func (l stallLoad) span() time.Duration { return time.Duration(l.slots) * l.tick }

// moment returns when the coarse bucket is moved, and when what is in it is due.
func (l stallLoad) moment(s subject.Subject, made time.Time) (cascade, due time.Time) {
	cascade = made.Add(time.Duration(l.spans) * l.span())
	if s.Name == "RussellLuo" { // its spans are those since 1970
		cascade = cascade.Add(l.span() - time.Duration(cascade.UnixNano())%l.span())
	}
	due = cascade.Add(l.span() * 15 / 16)
	if s.Name == "go-zero" { // it passes the slot a round before they are due
		cascade = due.Add(-l.span())
	}
	return cascade, due
}

func (l stallLoad) run(s subject.Subject, config string, emit Emit) {
	quiet, beside := newBesides(l), newBesides(l)
	t := s.New(subject.Options{Tick: l.tick, Slots: l.slots, Shards: l.shards})
	cascade, due := l.moment(s, time.Now())
	begin := cascade.Add(-2*l.window - l.span()/8)
	startAll(t, l.most, due, begin)
	t.Keep(1)
	measure.Settle()
	if time.Now().After(begin) {
		tooSlow("the cascade began before all had been started")
	}
	time.Sleep(time.Until(begin))
	quiet.until(t, begin.Add(l.window))
	time.Sleep(time.Until(cascade))
	before := measure.Collections()
	beside.until(t, cascade.Add(l.window))
	collections := measure.Collections() - before
	values := append(quiet.values("quiet-", s), beside.values("", s)...)
	emit(config, len(beside.adds), l.most, append(values,
		result.Value{Value: float64(len(beside.adds)), Unit: "adds"},
		result.Value{Value: float64(collections), Unit: "collections"})...)
	runtime.KeepAlive(t)
}

// besides is how long adds took, and how late single timers ran. It has its memory
// beforehand: growing it would bring on a collection in the middle of what is measured.
type besides struct {
	adds []time.Duration
	late []time.Duration
	ran  sync.WaitGroup
}

func newBesides(l stallLoad) *besides {
	b := &besides{adds: make([]time.Duration, l.adds), late: make([]time.Duration, 0, 2*l.window/time.Millisecond)}
	for i := range b.adds {
		b.adds[i] = 1 // so that the system has given the memory
	}
	b.adds = b.adds[:0]
	return b
}

// until adds and cancels without a pause until the end, and twice a millisecond starts a
// timer of 1 to 10 ms.
func (b *besides) until(t subject.Timers, end time.Time) {
	r := seeded(1)
	single := time.Now()
	for now := single; now.Before(end) && len(b.adds) < cap(b.adds); {
		t.Set(0, time.Hour, noop)
		after := time.Now()
		b.adds = append(b.adds, after.Sub(now))
		t.Cancel(0)
		if len(b.late) < cap(b.late) && after.After(single) {
			b.single(t, time.Millisecond+time.Duration(r.Int64N(int64(9*time.Millisecond))))
			single = single.Add(time.Millisecond / 2)
		}
		now = time.Now()
	}
}

func (b *besides) single(t subject.Timers, d time.Duration) {
	b.late = append(b.late, 0)
	late := &b.late[len(b.late)-1]
	b.ran.Add(1)
	due := time.Now().Add(d)
	t.Add(d, func() {
		*late = time.Since(due)
		b.ran.Done()
	})
}

// values describes them, once all have run.
func (b *besides) values(prefix string, s subject.Subject) (values []result.Value) {
	if len(b.adds) == 0 {
		tooSlow("it has added nothing")
	}
	slices.Sort(b.adds)
	us := func(p float64) float64 { return 1000 * measure.Ms(measure.Percentile(b.adds, p)) }
	values = append(values, result.Value{Value: us(50), Unit: prefix + "p50-us"},
		result.Value{Value: us(99.9), Unit: prefix + "p99.9-us"}, result.Value{Value: us(100), Unit: prefix + "max-us"})
	if s.Name == subject.None || len(b.late) == 0 {
		return values
	}
	b.ran.Wait()
	slices.Sort(b.late)
	late := func(p float64) float64 { return measure.Ms(measure.Percentile(b.late, p)) }
	return append(values, result.Value{Value: late(50), Unit: prefix + "late-p50-ms"},
		result.Value{Value: late(99), Unit: prefix + "late-p99-ms"}, result.Value{Value: late(100), Unit: prefix + "late-max-ms"})
}

// startAll starts n timers that are due at the same moment, from all processors. It ends
// early when the time for that is over: millions that are due already would take minutes
// of a busy machine.
func startAll(t subject.Timers, n int, due, end time.Time) {
	var wg sync.WaitGroup
	procs := runtime.GOMAXPROCS(0)
	for p := range procs {
		wg.Go(func() {
			for range n*(p+1)/procs - n*p/procs {
				now := time.Now()
				if now.After(end) {
					return
				}
				t.Add(due.Sub(now), noop)
			}
		})
	}
	wg.Wait()
}
