//go:build unix

package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// What is measured of limits.
const (
	goalRate  = 150 // a second
	goalBurst = 30
	inLane    = 100_000               // jobs of one lane, of a kind of which two run at once
	handling  = 20 * time.Millisecond // what a handler of that kind takes
)

// goals are those of limits, on each engine.
func goals() []scenario {
	on := func(limit durable.Limit, handler time.Duration, meets func(engine string, p ours, f *flow) bool) func() {
		measure := func(engine string) bool {
			s := newStore(engine)
			defer s.remove()
			worker := func() ours { return ours{q: s.open(), kinds: []string{kind}, handling: handler} }
			p := worker()
			must(p.q.SetLimit(background, "limit", limit))
			var f flow
			defer f.work(worker(), worker())()
			return meets(engine, p, &f)
		}
		return func() {
			met := true
			fmt.Println("\n| Engine | Goal | Measured | Met |\n|---|---|---|---|")
			for _, engine := range engines {
				met = measure(engine) && met
			}
			if !met {
				must(errors.New("a goal is missed"))
			}
		}
	}
	return []scenario{
		{"rate", on(durable.Limit{Kind: kind, Rate: goalRate, Burst: goalBurst}, 0, rateHolds)},
		{"lanes", on(durable.Limit{Kind: kind, Running: 2}, handling, lanesShare)},
	}
}

// rateHolds measures a rate with more jobs than it lets begin, for a minute at the most.
func rateHolds(engine string, p ours, f *flow) (met bool) {
	window := min(*length, time.Minute)
	fill(p, int(goalRate*window.Seconds())+2000, within(0, 1))
	time.Sleep(window + 4*time.Second)
	var at []time.Time
	for _, r := range f.since(0) {
		at = append(at, r.began)
	}
	slices.SortFunc(at, time.Time.Compare)
	if len(at) < 2*goalRate {
		must(errors.New("too few have run"))
	}
	from, _ := slices.BinarySearchFunc(at, at[0].Add(time.Second), time.Time.Compare) // after the burst
	to, _ := slices.BinarySearchFunc(at, at[0].Add(time.Second+window), time.Time.Compare)
	measured := float64(to-from) / window.Seconds()
	met = measured > goalRate*0.99 && measured < goalRate*1.01
	fmt.Printf("| %s | a rate of %d, within 1 %% | %.2f over %v; %d in one second at most, by the clock of the handlers | %v |\n",
		engine, goalRate, measured, window, mostIn(at, time.Second), met)
	return met
}

// lanesShare measures how long a job of one lane waits while another has many, and before.
func lanesShare(engine string, p ours, f *flow) (met bool) {
	time.Sleep(3 * time.Second)
	alone := p.waits(f)
	p.lane = "many"
	fill(p, inLane, within(0, 1))
	time.Sleep(10 * time.Second)
	beside := p.waits(f)
	n := len(alone)
	var before []int // of the many that began while one waited
	for _, one := range beside {
		before = append(before, len(slices.DeleteFunc(f.since(0), func(r ranJob) bool {
			return r.lane != p.lane || r.began.Before(one.due) || r.began.After(one.began)
		})))
	}
	slices.Sort(before)
	a, b := lateOf(alone), lateOf(beside)
	middle, longest := b[n/2]-a[n/2], b[n-1]-a[n-1]
	met = middle <= handling && longest <= handling
	fmt.Printf("| %s | a lane of %d jobs delays one of another by at most a handler's time, %v | %s at the median, at most %s, of %d jobs; of the many %d began meanwhile, at most %d | %v |\n",
		engine, inLane, handling, ms(middle), ms(longest), n, before[n/2], before[n-1], met)
	return met
}

// waits adds jobs each of a lane of its own, and returns them when they have begun.
func (p ours) waits(f *flow) (all []ranJob) {
	const n = 40
	seen := len(f.since(0))
	for i := range n {
		p.lane = fmt.Sprint("lane", i)
		fill(p, 1, within(0, 1))
		pause(200*time.Millisecond, 100*time.Millisecond)
	}
	for end := time.Now().Add(patience); len(all) < n; time.Sleep(time.Second) {
		if time.Now().After(end) {
			must(fmt.Errorf("of %d jobs of other lanes %d have begun", n, len(all)))
		}
		all = slices.DeleteFunc(f.since(seen), func(r ranJob) bool { return r.lane == "many" })
	}
	return all
}
