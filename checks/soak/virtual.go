package main

import (
	"math/rand/v2"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// virtual goes through some days of virtual time. Each function runs on its own tick, and
// none is lost.
func (s *soak) virtual() {
	const hours = int64(48 * time.Hour)
	tick := pick(time.Millisecond, time.Second, time.Hour)
	w := timingwheel.New(
		timingwheel.WithManualClock(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)),
		timingwheel.WithExecutor(timingwheel.Inline()),
		timingwheel.WithTick(tick),
		timingwheel.WithWheelSize(pick(2, 8, 512)),
		timingwheel.WithShards(pick(1, 4)),
	)
	added, ran := 0, 0
	var add func(d time.Duration)
	add = func(d time.Duration) {
		added++
		due := w.Now().Add(max(0, d))
		_, err := w.Schedule(d, func() {
			ran++
			if late := w.Now().Sub(due); late < 0 || late >= tick {
				s.violations.add("manual clock: %v late, with ticks of %v", late, tick)
			}
			if rand.IntN(2) == 0 {
				add(time.Duration(rand.Int64N(hours)))
			}
		})
		if err != nil {
			s.violations.add("manual clock: refused: %v", err)
		}
	}
	for range 500 {
		add(time.Duration(rand.Int64N(hours)) - time.Hour)
	}
	for range 20 {
		w.Advance(time.Duration(rand.Int64N(hours / 4)))
	}
	if left := w.Len(); left != added-ran || left != len(w.Stop()) {
		s.violations.add("manual clock: %d of %d have run, %d are left", ran, added, left)
	}
	s.total.tasks.Add(int64(added))
}
