//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// storeSchedule stores the i-th schedule, or changes it. It waits for a store that does not
// answer now.
func (p *process) storeSchedule(ctx context.Context, i int, payload string, opts ...durable.ScheduleOption) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// All of those that are missed run, so that none may be left out.
	opts = append(opts, durable.OnMissed(durable.MissedEach(1<<20)))
	job := durable.Job{Kind: p.SeriesKinds[i%len(p.SeriesKinds)], MaxAttempts: 1000, Payload: []byte(payload)}
	return p.q.SetSchedule(ctx, fmt.Sprint("s", i), "@every "+p.Every.String(), job, opts...)
}

// storeSchedules stores schedules as each process of a release that knows them does when it
// starts, and notes what is promised: an occurrence for each interval until the end. Only
// the process that runs what is left knows the end, which comes soon. Between an end that an earlier such
// process has stored and a later one nothing would be promised, so that it stays.
func (p *process) storeSchedules(ctx context.Context) {
	ends := map[string]time.Time{}
	if p.EndsSeries && p.Schedules > 0 {
		for info, err := range p.q.Schedules(ctx) {
			must(err)
			ends[info.Name] = info.End
		}
	}
	var all group
	all.SetLimit(16)
	for i := range p.Schedules {
		all.run(func() {
			if err := p.promise(ctx, i, ends[fmt.Sprint("s", i)]); ctx.Err() == nil {
				must(err)
			}
		})
	}
	all.wait()
}

// promise stores one, unless it has an end. It chooses a later end if that which it chose has passed meanwhile.
func (p *process) promise(ctx context.Context, i int, end time.Time) (err error) {
	ended, until := !end.IsZero(), int64(0)
	for !ended {
		var opts []durable.ScheduleOption
		if p.EndsSeries {
			end = time.Now().Add(2 * time.Second)
			opts = append(opts, durable.EndAt(end))
		}
		if err = p.storeSchedule(ctx, i, "", opts...); !p.EndsSeries || !errors.Is(err, durable.ErrInvalid) {
			break
		}
	}
	if !end.IsZero() {
		until = end.UnixMicro()
	}
	if err == nil {
		p.l.write(promised, fmt.Sprintf("s%d|%d|%d", i, until, p.Every.Microseconds()))
	}
	return err
}

// editSchedules changes schedules all the time, and keeps their times.
func (p *process) editSchedules(ctx context.Context) {
	for n := 0; p.Schedules > 0 && ctx.Err() == nil; n++ {
		if p.storeSchedule(ctx, rand.N(p.Schedules), strconv.Itoa(n), durable.Jitter(rand.N(p.Every/2))) == nil { // the server is there
			time.Sleep(rand.N(50 * time.Millisecond))
		}
	}
}

// awaitPromised waits until all schedules are stored, but not for ever.
func (w *world) awaitPromised() {
	for began := time.Now(); audit(w.dir).Schedules < w.r.schedules && time.Since(began) < patience; {
		time.Sleep(100 * time.Millisecond)
	}
}

// promise returns a change that makes workers store so many schedules. The process that runs
// what is left ends them.
func (w *world) promise(n int, every time.Duration, kinds ...string) func(*spec) {
	w.r.twice = -1 // what was running when it was killed runs again
	w.r.schedules = n
	w.known = func(s *spec) { s.Schedules, s.Every, s.SeriesKinds = n, every, kinds }
	return w.known
}

// edited is a fault beside workers that change schedules all the time.
func edited(fault func(*world)) func(*world) {
	return func(w *world) {
		w.promise(20, 500*time.Millisecond, kind)(&w.spec)
		w.spec.Edits = true
		fault(w)
	}
}

// killScheduled kills workers with a thousand schedules, one of which is due each
// millisecond, whether or not they know them.
func killScheduled(w *world) {
	n := 1000
	if w.set.brief {
		n = 40
	}
	w.startAll()
	known := w.promise(n, time.Second, kind)
	w.start("worker2", "worker", known)
	w.awaitPromised()
	w.stop("worker2") // nobody who is left knows them, except workers that begin anew
	w.until(2, time.Second, 3*time.Second, func(n int) {
		name := worker(n % 2)
		w.kill(name)
		if n%2 == 0 {
			w.start(name, "worker")
		} else {
			w.start(name, "worker", known)
		}
	})
}

// deploy rolls a release out that knows schedules, and back to one that does not, again and
// again. Half of them are of a kind that the older release has no handler for either. The
// first process that knows them is there for a moment.
func deploy(w *world) {
	w.startAll()
	known := w.promise(20, 500*time.Millisecond, kind, "other")
	w.until(2, 0, 0, func(n int) {
		change := func(s *spec) { known(s); s.Kinds = []string{kind, "other"} }
		if n%2 == 1 {
			w.awaitPromised()
			change = func(*spec) {} // back
		}
		for i := range 2 {
			w.start("worker2", "worker", change)
			pause(500*time.Millisecond, time.Second)
			w.stop(worker(i))
			w.procs[worker(i)] = w.procs["worker2"]
			delete(w.procs, "worker2")
		}
		w.r.Happened++
	})
}
