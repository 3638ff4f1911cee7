package workload

import (
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// ticks is what WithTick costs and saves.
func ticks(size Size) Workload {
	widths := pick(size, []time.Duration{1, 4, 16, 64}, []time.Duration{1, 4, 16, 64}, []time.Duration{4})
	loneRate := 1000
	loneSpell := pick(size, 1500*time.Millisecond, 500*time.Millisecond, 50*time.Millisecond)
	rate := pick(size, 50_000, 50_000, 1000)
	spell := pick(size, 2*time.Second, 500*time.Millisecond, 20*time.Millisecond)
	longest := pick(size, time.Second, 300*time.Millisecond, 30*time.Millisecond)
	w := Workload{
		Name:  "Ticks",
		Title: "What the tick costs",
		Shows: fmt.Sprintf("A wheel whose ticks are as wide as that, beside package time, which has none and "+
			"is measured anew for each. Alone are %s timers a second that come due at random moments, as "+
			"under \"Timers that come due alone\"; the mix has %s a second, at most %v long, from the "+
			"generator that sleeps in the system. CPU is gross, for each timer. A timer is late by up to a "+
			"tick.", Count(loneRate), Count(rate), longest),
		Rounds: pick(size, 3, 1, 1),
		Share:  pick(size, 100*time.Second, 12*time.Second, time.Second),
	}
	lone, mixed := Table{Caption: "alone: CPU ns a timer (ratio)"}, Table{Caption: "the mix: CPU ns a timer (ratio)"}
	for _, width := range widths {
		tick := width * time.Millisecond
		column := func(t *Table, config string) {
			t.Columns = append(t.Columns, Column{Head: tick.String(), Config: config, Unit: "cpu-ns/timer", Ratio: true})
		}
		loneConfig, mixConfig := fmt.Sprintf("load=alone/tick=%v", tick), fmt.Sprintf("load=mix/tick=%v", tick)
		column(&lone, loneConfig)
		column(&mixed, mixConfig)
		options := subject.Options{Tick: tick}
		w.Cases = append(w.Cases, Case{
			Name: loneConfig, Configs: []string{loneConfig}, Timeout: loneSpell + 20*time.Second, Without: ticking,
			Run: func(s subject.Subject, emit Emit) {
				fireAlone(s, options, loneRate, loneSpell, loneConfig, emit)
			},
		}, Case{
			Name: mixConfig, Configs: []string{mixConfig}, Timeout: spell + 25*time.Second, Without: ticking,
			Run: func(s subject.Subject, emit Emit) {
				steps := plan(rate, spell, longest)
				threadGenerator.do(func() { runMix(s, options, mixConfig, rate, steps, threadGenerator.sleep, emit) })
			},
		})
	}
	w.Tables = []Table{lone, mixed}
	return w
}

// ticking leaves out all but package time and the plainest wheel.
func ticking(s subject.Subject) string {
	if s.Name != subject.Baseline && s.Name != "wheel.Schedule" {
		return NotHere
	}
	return ""
}
