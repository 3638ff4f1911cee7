package workload

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// sparse is what one timer costs that comes due alone: wake-ups, mostly.
func sparse(size Size) Workload {
	rates := pick(size, []int{1000, 50}, []int{1000, 50}, []int{1000})
	spell := func(rate int) time.Duration {
		if rate < 1000 {
			return pick(size, 4*time.Second, 2*time.Second, 100*time.Millisecond)
		}
		return pick(size, 2*time.Second, 700*time.Millisecond, 50*time.Millisecond)
	}
	w := Workload{
		Name:  "Sparse",
		Title: "Timers that come due alone",
		Shows: "So many timers a second come due, at random moments, each of which adds one to a counter. All " +
			"are started before that, and nothing else happens. CPU is the process's for each timer, " +
			"without the adding; net is without the row of the subject none, whose process only sleeps, " +
			"in the system. Switches are voluntary ones: a thread that went to sleep. With 50 a second all " +
			"subjects run at the same time.",
		Rounds: pick(size, 3, 2, 1),
		Share:  pick(size, 90*time.Second, 14*time.Second, time.Second),
	}
	for _, rate := range rates {
		config := fmt.Sprintf("rate=%d", rate)
		w.Cases = append(w.Cases, Case{
			Name: config, Configs: []string{config}, Together: rate < 1000,
			Timeout: spell(rate) + 20*time.Second,
			Without: loaded,
			Run: func(s subject.Subject, emit Emit) {
				fireAlone(s, subject.Options{}, rate, spell(rate), config, emit)
			},
		})
		w.Tables = append(w.Tables, Table{
			Caption: Count(rate) + " timers a second",
			Columns: []Column{
				{Head: "CPU ns a timer, net (ratio)", Config: config, Unit: "cpu-ns/timer", Ratio: true, Net: true},
				{Head: "switches a timer", Config: config, Unit: "switches/timer"},
			},
		})
		w.Headlines = append(w.Headlines, Headline{
			Work: Count(rate) + " timers a second, each alone: CPU of a timer", Subject: "wheel.Schedule",
			Config: config, Unit: "cpu-ns/timer", Net: true,
		})
	}
	return w
}

func fireAlone(s subject.Subject, o subject.Options, rate int, spell time.Duration, config string, emit Emit) {
	const head = 500 * time.Millisecond // all subjects may be starting now
	t := s.New(o)
	n := int(int64(rate) * int64(spell) / int64(time.Second))
	r := seeded(rate)
	var fired atomic.Int64
	begin := time.Now().Add(head)
	for range n {
		t.Add(time.Until(begin.Add(time.Duration(r.Int64N(int64(spell))))), func() { fired.Add(1) })
	}
	measure.Settle()
	if time.Now().After(begin) {
		tooSlow("the first was due before the last had been started")
	}
	measure.Sleep(time.Until(begin))
	before := measure.CPU()
	measure.Sleep(time.Until(begin.Add(spell)))
	after := measure.CPU()
	if s.Name != subject.None {
		for end := time.Now().Add(5 * time.Second); fired.Load() < int64(n); measure.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				fail("%d of %d had not run 5 s after the last was due", n-int(fired.Load()), n)
			}
		}
	}
	emit(config, n, n,
		result.Value{Value: ns(after.CPU-before.CPU, n), Unit: "cpu-ns/timer"},
		result.Value{Value: float64(after.Voluntary-before.Voluntary) / float64(n), Unit: "switches/timer"})
	runtime.KeepAlive(t)
}
