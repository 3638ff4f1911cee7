package workload

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// crowd is how late timers are when callers leave no processor free.
func crowd(size Size) Workload {
	const rate = 1000
	spell := pick(size, 1500*time.Millisecond, 500*time.Millisecond, 50*time.Millisecond)
	widths := []int{16, 64}
	w := Workload{
		Name:  "Crowd",
		Title: "Lateness in a crowd of callers",
		Shows: fmt.Sprintf("%s timers a second come due at random moments for %v, all started before that, "+
			"while so many goroutines do nothing but start timers and cancel them. The goroutines that run "+
			"what is due stand in line with those for a processor, and with some subjects for a lock: that "+
			"is what is measured. Adds are what the crowd does meanwhile, and a subject that stands in its "+
			"own way has fewer.", Count(rate), spell),
		Rounds: pick(size, 3, 1, 1),
		Share:  pick(size, 80*time.Second, 16*time.Second, time.Second),
	}
	for _, goroutines := range widths {
		config := fmt.Sprintf("goroutines=%d", goroutines)
		w.Cases = append(w.Cases, Case{
			Name: config, Configs: []string{config},
			Timeout: spell + 20*time.Second,
			Without: firing,
			Run: func(s subject.Subject, emit Emit) {
				late, adds := lateInCrowd(s.New(subject.Options{}), rate, goroutines, spell)
				emit(config, len(late), 0, append(quantiles(late),
					result.Value{Value: float64(adds) / spell.Seconds(), Unit: "adds/s"})...)
			},
		})
		w.Tables = append(w.Tables, Table{
			Caption: fmt.Sprintf("lateness beside %d goroutines", goroutines),
			Columns: []Column{
				{Head: "p50 ms (ratio)", Config: config, Unit: QuantileUnit(50), Ratio: true},
				{Head: "p99 ms (ratio)", Config: config, Unit: QuantileUnit(99), Ratio: true},
				{Head: "max ms", Config: config, Unit: "max-ms"},
				{Head: "early %", Config: config, Unit: "early-%"},
				{Head: "adds/s", Config: config, Unit: "adds/s"},
			},
		})
		w.Headlines = append(w.Headlines, Headline{
			Work:    fmt.Sprintf("lateness beside %d goroutines that add and cancel, p99", goroutines),
			Subject: "wheel.AfterFunc", Config: config, Unit: QuantileUnit(99),
		})
	}
	return w
}

// lateInCrowd returns how late timers ran, sorted, and how many a crowd has added
// meanwhile.
func lateInCrowd(t subject.Timers, rate, goroutines int, spell time.Duration) (late []time.Duration, adds int) {
	const head = 300 * time.Millisecond
	late = make([]time.Duration, int64(rate)*int64(spell)/int64(time.Second))
	var done atomic.Int64
	r := seeded(rate)
	measure.Settle()
	begin := time.Now().Add(head)
	for i := range late {
		due := begin.Add(time.Duration(r.Int64N(int64(spell))))
		t.Add(time.Until(due), func() {
			late[i] = time.Since(due)
			done.Add(1)
		})
	}
	if time.Now().After(begin) {
		tooSlow("the first was due before the last had been started")
	}
	adds = onEach(goroutines, time.Until(begin.Add(spell)), addCancels(t))
	for end := time.Now().Add(5 * time.Second); done.Load() < int64(len(late)); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			fail("%d of %d had not run 5 s after the last was due", len(late)-int(done.Load()), len(late))
		}
	}
	runtime.KeepAlive(t)
	slices.Sort(late)
	return late, adds
}
