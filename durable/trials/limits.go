//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// What is measured of limits.
const (
	goalRate  = 150.0 // a second
	goalBurst = 30
	shared    = "lanes" // a kind of which two run at once, and one lane has many jobs
	laneMany  = "many"
	inLane    = 100_000               // jobs of that lane
	handling  = 20 * time.Millisecond // what a handler of that kind takes

	freeRounds = 9
	freeJobs   = 3000
	freeCost   = 1.03
)

// row is a goal and what came of it.
type row struct {
	goal, measured string
	met            bool
}

// goals are those of limits, on each engine.
func goals() (all []scenario) {
	for _, g := range []struct {
		name    string
		measure func(engine string) []row
	}{{"free", freeOfLimits}, {"killed", neverAbove}, {"rate", rateHolds}, {"lanes", lanesShare}} {
		all = append(all, scenario{g.name, func() error {
			missed := false
			for _, engine := range engines() {
				for _, r := range g.measure(engine) {
					fmt.Printf("| %s | %s | %s | %s |\n", engine, r.goal, r.measured, map[bool]string{true: "yes", false: "NO"}[r.met])
					missed = missed || !r.met
				}
			}
			if missed {
				return errors.New("a goal is missed")
			}
			return nil
		}})
	}
	return all
}

// neverAbove is the fault in which workers are killed, frozen and ended while more jobs come
// than the limits let run.
func neverAbove(engine string) []row {
	dir, remove := directory("limits")
	defer remove()
	r, err := runFault(map[string]string{onJetStream: "limits", onPostgres: "pg-limits"}[engine], dir,
		settings{length: *length, near: time.Second, far: time.Second, quick: true})
	must(err)
	return []row{{
		fmt.Sprintf("never above %d at once, and %d of a lane, whichever worker is killed", places, perLane),
		fmt.Sprintf("%d and %d, in %d attempts, %d kills and %d freezes", r.Limits.Places, r.Limits.Lane, r.Limits.Bouts, r.Kills, r.Freezes),
		r.Limits.check(true) == nil && r.Limits.Bouts > 100,
	}}
}

// freeOfLimits measures what jobs pay that no limit covers: the processor time of a life, of
// this process and of the server, with no rules at all and with those of others. The two are
// alternated, and the median of the ratios counts.
func freeOfLimits(engine string) []row {
	s := newStore(engine)
	defer s.remove()
	q, c := s.open(), newCrew()
	c.work(q, []string{"free"}, "")
	var ratios []float64
	for i := range freeRounds + 1 {
		var took [2]time.Duration
		for k := range took {
			with := (i + k) % 2
			setOthers(q, with == 1)
			took[with] = lives(q, s, c)
		}
		if i > 0 { // the first is a warm-up
			ratios = append(ratios, float64(took[1])/float64(took[0]))
		}
	}
	c.end()
	middle := median(ratios)
	return []row{{
		fmt.Sprintf("jobs without a limit pay at most %v", freeCost),
		fmt.Sprintf("%.3f of the processor time, median of %d (%.3f to %.3f)", middle, len(ratios), slices.Min(ratios), slices.Max(ratios)),
		middle <= freeCost,
	}}
}

// setOthers sets limits for other kinds, or removes them.
func setOthers(q *durable.Queue, there bool) {
	for i := range 10 {
		l := durable.Limit{}
		if there {
			l = durable.Limit{Kind: fmt.Sprint("other", i), Running: 1, PerLane: i%2 == 0}
		}
		if err := q.SetLimit(context.Background(), fmt.Sprint("other", i), l); there || !errors.Is(err, durable.ErrNotFound) {
			must(err)
		}
	}
	time.Sleep(time.Second) // until it is known everywhere
}

// lives returns the processor time of the whole lives of jobs.
func lives(q *durable.Queue, s *store, c *crew) time.Duration {
	from, began := c.count(), s.cpu()
	for range freeJobs / 30 {
		addAll(q, slices.Repeat([]durable.Job{{Kind: "free", Lane: "l"}}, 30)...)
		time.Sleep(10 * time.Millisecond)
	}
	c.await(from + freeJobs)
	for st := q.Stats(); st.Ending+st.Held > 0; st = q.Stats() {
		time.Sleep(5 * time.Millisecond)
	}
	return s.cpu() - began
}

// limited calls f while two workers run a kind under a limit.
func limited(engine string, l durable.Limit, change func(*spec), f func(w *world, q *durable.Queue)) {
	dir, remove := directory("limits")
	defer remove()
	s := newStore(engine)
	defer s.remove()
	q := s.open()
	must(q.SetLimit(context.Background(), "limit", l))
	inWorld(dir, "", 0, func(w *world) {
		w.spec.URL, w.spec.Kinds, w.spec.Bouts = s.url(), []string{l.Kind}, true
		change(&w.spec)
		f(w, q)
	})
}

// bouts returns the attempts by when they began.
func (w *world) bouts() (all []*bout, tokens []time.Time) {
	b := readLedgers(w.dir).limits
	sortByBegin(b.bouts)
	slices.SortFunc(b.tokens, time.Time.Compare)
	return b.bouts, b.tokens
}

// rateHolds measures a rate with more jobs than it lets begin, on two workers, for a minute at
// the most.
func rateHolds(engine string) (rows []row) {
	length := min(*length, time.Minute+2*time.Second)
	instantly := func(s *spec) { s.Slow = 1 }
	limited(engine, durable.Limit{Kind: paced, Rate: goalRate, Burst: goalBurst}, instantly, func(w *world, q *durable.Queue) {
		fillStore(q, int(goalRate*length.Seconds())+1000, durable.Job{Kind: paced}, 0, 1)
		w.start("worker0", "worker")
		w.start("worker1", "worker")
		time.Sleep(length + 2*time.Second)
		all, tokens := w.bouts()
		at := begins(all, paced)
		if len(at) == 0 {
			must(errors.New("nothing has run"))
		}
		window := length - 2*time.Second
		after := func(t time.Time) int { i, _ := slices.BinarySearchFunc(at, t, time.Time.Compare); return i }
		from := after(at[0].Add(time.Second)) // after the burst
		measured := float64(after(at[from].Add(window))-from) / window.Seconds()
		given := mostIn(tokens, time.Second)
		rows = []row{{
			fmt.Sprintf("a rate of %v, within 1 %%", goalRate),
			fmt.Sprintf("%.2f over %v", measured, window),
			measured > goalRate*0.99 && measured < goalRate*1.01,
		}, {
			fmt.Sprintf("never above %v in a second, by the engine's clock", goalRate+goalBurst),
			fmt.Sprintf("%d; by the clock of the handlers, which begin when the claim is stored, %d", given, mostIn(at, time.Second)),
			float64(given) <= goalRate+goalBurst && len(tokens) >= len(at),
		}}
	})
	return rows
}

// lanesShare measures how long a job of one lane waits while another has many, and before.
func lanesShare(engine string) (rows []row) {
	slowly := func(s *spec) { s.Least, s.Slow = handling, 1 }
	limited(engine, durable.Limit{Kind: shared, Running: 2}, slowly, func(w *world, q *durable.Queue) {
		w.start("worker0", "worker")
		w.start("worker1", "worker")
		time.Sleep(3 * time.Second)
		alone, _ := w.waits(q, "alone")
		fillStore(q, inLane, durable.Job{Kind: shared, Lane: laneMany}, 0, 1)
		time.Sleep(10 * time.Second)
		beside, before := w.waits(q, "beside")
		n := len(alone)
		middle, longest := beside[n/2]-alone[n/2], beside[n-1]-alone[n-1]
		rows = []row{{
			fmt.Sprintf("a lane of %d jobs delays one of another by at most a handler's time, %v", inLane, handling),
			fmt.Sprintf("by %s, at most %s: %s and %s instead of %s and %s, %d jobs; of the many %d began meanwhile, at most %d",
				ms(middle), ms(longest), ms(beside[n/2]), ms(beside[n-1]), ms(alone[n/2]), ms(alone[n-1]), n, before[n/2], before[n-1]),
			middle <= handling && longest <= handling,
		}}
	})
	return rows
}

// waits adds jobs each of a lane of its own, and returns how long they have waited, and how many
// of the lane with many jobs have begun meanwhile; both are sorted.
func (w *world) waits(q *durable.Queue, name string) (waits []time.Duration, before []int) {
	added := map[string]time.Time{}
	for i := range 40 {
		lane := fmt.Sprint(name, i)
		added[lane] = time.Now()
		addAll(q, durable.Job{Kind: shared, Lane: lane})
		pause(200*time.Millisecond, 100*time.Millisecond)
	}
	time.Sleep(5 * time.Second)
	all, _ := w.bouts()
	for _, one := range all {
		at, ok := added[one.lane]
		if !ok {
			continue
		}
		waits = append(waits, one.begin.Sub(at))
		n := 0
		for _, other := range all {
			if other.lane == laneMany && other.begin.After(at) && other.begin.Before(one.begin) {
				n++
			}
		}
		before = append(before, n)
	}
	if len(waits) != len(added) {
		must(fmt.Errorf("of %d jobs of other lanes %d have begun", len(added), len(waits)))
	}
	slices.Sort(waits)
	slices.Sort(before)
	return waits, before
}
