package workload

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// idle is what a subject costs while nothing is due.
func idle(size Size) Workload {
	spell := pick(size, 5*time.Second, time.Second, 20*time.Millisecond)
	most := pick(size, 100_000, 100_000, 100)
	const one, canceled = "after=nothing", "after=cancels"
	w := Workload{
		Name:  "Idle",
		Title: "Idle",
		Shows: fmt.Sprintf("For %v nothing is due: with one timer an hour ahead, and after %s timers of "+
			"10 to 500 ms were started and all canceled, which is where a wheel may wake for buckets "+
			"that are empty. A switch is a voluntary one: a thread that went to sleep, having been "+
			"woken. The row of the subject none is the process without a timer, which sleeps in the "+
			"system, without a timer of the runtime; what is above it is the subject's. All subjects "+
			"idle at the same time, in processes of their own.", spell, Count(most)),
		Rounds: pick(size, 3, 2, 1),
		Share:  pick(size, 40*time.Second, 5*time.Second, time.Second),
		Tables: []Table{{Caption: fmt.Sprintf("%v of idleness", spell), Columns: []Column{
			{Head: "switches, one timer", Config: one, Unit: "switches"},
			{Head: "CPU ms", Config: one, Unit: "cpu-ms"},
			{Head: "switches, after cancels", Config: canceled, Unit: "switches"},
			{Head: "CPU ms", Config: canceled, Unit: "cpu-ms"},
		}}},
	}
	for _, config := range []string{one, canceled} {
		w.Cases = append(w.Cases, Case{
			Name: config, Configs: []string{config}, Together: true,
			Timeout: spell + 20*time.Second,
			Without: func(s subject.Subject) string {
				if precise(s) {
					return "" // on its descriptor
				}
				return timersOnly(s)
			},
			Run: func(s subject.Subject, emit Emit) {
				t, n := s.New(subject.Options{}), 1
				if config == one {
					t.Add(time.Hour, noop)
				} else {
					n = s.BearsOften(most)
					startAndCancel(t, n)
				}
				debug.FreeOSMemory() // or the runtime does so later, piece by piece, waking up for each
				measure.Sleep(20 * time.Millisecond)
				before := measure.CPU()
				measure.Sleep(spell)
				after := measure.CPU()
				emit(config, 1, n,
					result.Value{Value: float64(after.Voluntary - before.Voluntary), Unit: "switches"},
					result.Value{Value: measure.Ms(after.CPU - before.CPU), Unit: "cpu-ms"})
				t.AddCancel(time.Hour, noop)
			},
		})
	}
	return w
}

// startAndCancel starts n timers, all of which are canceled: a thousand at a time,
// so that none is due before its turn has come.
func startAndCancel(t subject.Timers, n int) {
	const group = 1000
	r := seeded(n)
	t.Keep(group)
	for n > 0 {
		now := min(n, group)
		for i := range now {
			t.Set(i, 10*time.Millisecond+time.Duration(r.Int64N(int64(490*time.Millisecond))), noop)
		}
		for i := range now {
			t.Cancel(i)
		}
		n -= now
	}
}
