//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// What is measured of limits.
const (
	goalRate  = 150 // a second
	goalBurst = 30
	shared    = "lanes" // a kind of which two run at once, and one lane has many jobs
	laneMany  = "many"
	inLane    = 100_000               // jobs of that lane
	handling  = 20 * time.Millisecond // what a handler of that kind takes
)

// goals are those of limits, on each engine.
func goals() []scenario {
	on := func(measure func(engine string) (met bool)) func() {
		return func() {
			met := true
			for _, engine := range engines() {
				met = measure(engine) && met
			}
			if !met {
				must(errors.New("a goal is missed"))
			}
		}
	}
	return []scenario{{"rate", on(rateHolds)}, {"lanes", on(lanesShare)}}
}

// limited calls f while two workers run a kind under a limit.
func limited(engine string, l durable.Limit, handler time.Duration, f func(w *world, q *durable.Queue)) {
	dir := get(os.MkdirTemp("", "limits"))
	defer os.RemoveAll(dir)
	inWorld(dir, engine, func(w *world) {
		w.startServers()
		w.spec.URL, w.spec.Kinds, w.spec.Bouts, w.spec.Least, w.spec.Slow = w.url(), []string{l.Kind}, true, handler, 1
		q := get(durable.Open(background, connectRole(background, &w.spec)))
		defer q.Close()
		must(q.SetLimit(background, "limit", l))
		w.start(worker(0), "worker")
		w.start(worker(1), "worker")
		f(w, q)
	})
}

// readBouts returns the attempts by when they began.
func (w *world) readBouts() []*bout {
	all := readLedgers(w.dir).limits.bouts
	sortByBegin(all)
	return all
}

// rateHolds measures a rate with more jobs than it lets begin, on two workers, for a minute at
// the most.
func rateHolds(engine string) (met bool) {
	limit := durable.Limit{Kind: paced, Rate: goalRate, Burst: goalBurst}
	window := min(*length, time.Minute)
	limited(engine, limit, 0, func(w *world, q *durable.Queue) {
		addSame(q, int(goalRate*window.Seconds())+2000, durable.Job{Kind: paced})
		time.Sleep(window + 4*time.Second)
		at := begins(w.readBouts(), paced)
		if len(at) < 2*goalRate {
			must(errors.New("too few have run"))
		}
		from, _ := slices.BinarySearchFunc(at, at[0].Add(time.Second), time.Time.Compare) // after the burst
		to, _ := slices.BinarySearchFunc(at, at[from].Add(window), time.Time.Compare)
		measured := float64(to-from) / window.Seconds()
		met = measured > goalRate*0.99 && measured < goalRate*1.01
		fmt.Printf("| %s | a rate of %d, within 1 %% | %.2f over %v; %d in one second at most, by the clock of the handlers | %v |\n",
			engine, goalRate, measured, window, mostIn(at, time.Second), met)
	})
	return met
}

// lanesShare measures how long a job of one lane waits while another has many, and before.
func lanesShare(engine string) (met bool) {
	limited(engine, durable.Limit{Kind: shared, Running: 2}, handling, func(w *world, q *durable.Queue) {
		time.Sleep(3 * time.Second)
		alone, _ := w.waits(q, "alone")
		addSame(q, inLane, durable.Job{Kind: shared, Lane: laneMany})
		time.Sleep(10 * time.Second)
		beside, before := w.waits(q, "beside")
		n := len(alone)
		middle, longest := beside[n/2]-alone[n/2], beside[n-1]-alone[n-1]
		met = middle <= handling && longest <= handling
		fmt.Printf("| %s | a lane of %d jobs delays one of another by at most a handler's time, %v | %s at the median, at most %s, of %d jobs; of the many %d began meanwhile, at most %d | %v |\n",
			engine, inLane, handling, ms(middle), ms(longest), n, before[n/2], before[n-1], met)
	})
	return met
}

// waits adds jobs each of a lane of its own, and returns how long they have waited, and how many
// of the lane with many jobs have begun meanwhile; both are sorted.
func (w *world) waits(q *durable.Queue, name string) (waits []time.Duration, before []int) {
	added := map[string]time.Time{}
	for i := range 40 {
		lane := fmt.Sprint(name, i)
		added[lane] = time.Now()
		addSame(q, 1, durable.Job{Kind: shared, Lane: lane})
		pause(200*time.Millisecond, 100*time.Millisecond)
	}
	var all []*bout
	first := map[string]*bout{} // by lane
	for end := time.Now().Add(patience); len(first) < len(added); time.Sleep(time.Second) {
		if time.Now().After(end) {
			must(fmt.Errorf("of %d jobs of other lanes %d have begun", len(added), len(first)))
		}
		all = w.readBouts()
		for _, one := range slices.Backward(all) {
			if _, ok := added[one.lane]; ok {
				first[one.lane] = one
			}
		}
	}
	for lane, one := range first {
		n := 0
		for _, other := range all {
			if other.lane == laneMany && other.begin.After(added[lane]) && other.begin.Before(one.begin) {
				n++
			}
		}
		waits, before = append(waits, one.begin.Sub(added[lane])), append(before, n)
	}
	slices.Sort(waits)
	slices.Sort(before)
	return waits, before
}
