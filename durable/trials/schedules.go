//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// storeSchedule stores the i-th schedule, or changes it. It waits for a store that does not
// answer now.
func (p *process) storeSchedule(ctx context.Context, i int, payload string, opts ...durable.ScheduleOption) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	name = "s" + strconv.Itoa(i)
	// All of those that are missed run, so that none may be left out.
	opts = append(opts, durable.OnMissed(durable.RunEach(1<<20)))
	job := durable.Job{Kind: p.SeriesKinds[i%len(p.SeriesKinds)], MaxAttempts: 1000, Payload: []byte(payload)}
	return name, p.q.Schedule(ctx, name, "@every "+p.Every.String(), job, opts...)
}

// storeSchedules stores schedules as each process of a release that knows them does when it
// starts, and notes what is promised: an occurrence for each interval until the end. Only
// the process that runs what is left knows the end, which comes soon.
func (p *process) storeSchedules(ctx context.Context) {
	const atOnce = 16
	var all group
	ended := p.endedSchedules(ctx)
	for k := range atOnce {
		all.run(func() {
			for i := k; i < p.Schedules; i += atOnce {
				if err := p.promise(ctx, i, ended); ctx.Err() == nil {
					must(err)
				}
			}
		})
	}
	all.wait()
}

// endedSchedules returns the ends of schedules that an earlier process of what is left has ended. Between
// such an end and a later one nothing was promised.
func (p *process) endedSchedules(ctx context.Context) map[string]int64 {
	ends := map[string]int64{}
	if p.EndsSeries && p.Schedules > 0 {
		for info, err := range p.q.Schedules(ctx) {
			if must(err); !info.End.IsZero() {
				ends[info.Name] = info.End.UnixMicro()
			}
		}
	}
	return ends
}

// promise stores one, unless it was ended. It chooses a later end if that which it chose has passed meanwhile.
func (p *process) promise(ctx context.Context, i int, ended map[string]int64) error {
	if name := "s" + strconv.Itoa(i); ended[name] > 0 {
		p.l.write(promised, fmt.Sprintf("%s|%d|%d", name, ended[name], p.Every.Microseconds()))
		return nil
	}
	for {
		var until int64
		var opts []durable.ScheduleOption
		if p.EndsSeries {
			end := time.Now().Add(2 * time.Second)
			until, opts = end.UnixMicro(), append(opts, durable.EndAt(end))
		}
		name, err := p.storeSchedule(ctx, i, "", opts...)
		if err == nil {
			p.l.write(promised, fmt.Sprintf("%s|%d|%d", name, until, p.Every.Microseconds()))
		}
		if !p.EndsSeries || !errors.Is(err, durable.ErrInvalid) {
			return err
		}
	}
}

// editSchedules changes schedules all the time, and keeps their times.
func (p *process) editSchedules(ctx context.Context) {
	for n := 0; p.Schedules > 0 && ctx.Err() == nil; n++ {
		if _, err := p.storeSchedule(ctx, rand.N(p.Schedules), strconv.Itoa(n), durable.Jitter(rand.N(p.Every/2))); err == nil { // the server is there
			time.Sleep(rand.N(50 * time.Millisecond))
		}
	}
}

// series is what the ledgers say of a schedule.
type series struct {
	until, every int64                     // microseconds; until is 0 if nobody has ended it
	runs         map[int64]map[string]bool // by the time of an occurrence, the Refs under which it has begun
}

// addSeries adds a line about a schedule.
func addSeries(all map[string]*series, what rune, text string) {
	f := strings.Split(text, "|")
	if len(f) != 3 {
		return
	}
	s := all[f[0]]
	if s == nil {
		s = &series{runs: map[int64]map[string]bool{}}
		all[f[0]] = s
	}
	at, _ := strconv.ParseInt(f[1], 10, 64)
	if what == promised {
		s.until = max(s.until, at)
		s.every, _ = strconv.ParseInt(f[2], 10, 64)
		return
	}
	if s.runs[at] == nil {
		s.runs[at] = map[string]bool{}
	}
	s.runs[at][f[2]] = true
}

// count returns how many occurrences there were, how many are missing between the first
// and the end of the schedule, and how many were stored twice.
func (s *series) count() (there, missing, doubled int) {
	var first int64
	for at, refs := range s.runs {
		if first == 0 || at < first {
			first = at
		}
		doubled += len(refs) - 1
	}
	if first == 0 || s.until == 0 {
		return len(s.runs), 1, doubled
	}
	for at := first; at < s.until; at += s.every {
		if s.runs[at] == nil {
			missing++
		}
	}
	return len(s.runs), missing, doubled
}

// awaitPromised waits until all schedules are stored, but not for ever.
func (w *world) awaitPromised() {
	for began := time.Now(); audit(w.dir).Series < w.r.Scheduled && time.Since(began) < patience; {
		time.Sleep(100 * time.Millisecond)
	}
}

// promise returns a change that makes workers store so many schedules. The process that runs
// what is left ends them.
func (w *world) promise(n int, every time.Duration, kinds ...string) func(*spec) {
	w.r.CheckTwice = false // what was running when it was killed runs again
	w.r.Scheduled = n
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
func (w *world) killScheduled() {
	n := 1000
	if w.set.brief {
		n = 40
	}
	w.startAll()
	known := w.promise(n, time.Second, kind)
	w.start("worker2", "worker", known)
	w.awaitPromised()
	w.stop("worker2") // nobody who is left knows them, except workers that begin anew
	w.until(2, func(n int) {
		pause(time.Second, 3*time.Second)
		name := "worker" + strconv.Itoa(n%2)
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
func (w *world) deploy() {
	w.startAll()
	known := w.promise(20, 500*time.Millisecond, kind, "other")
	w.until(2, func(n int) {
		change := func(s *spec) { known(s); s.Kinds = []string{kind, "other"} }
		if n%2 == 1 {
			w.awaitPromised()
			change = func(*spec) {} // back
		}
		for _, name := range []string{"worker0", "worker1"} {
			w.start("worker2", "worker", change)
			pause(500*time.Millisecond, time.Second)
			w.stop(name)
			w.procs[name] = w.procs["worker2"]
			delete(w.procs, "worker2")
		}
		w.r.Provoked++
	})
}

// auditSeries adds what the ledgers say of schedules.
func (a *account) auditSeries(all map[string]*series) {
	for name, s := range all {
		there, missing, doubled := s.count()
		a.Series++
		a.Occurrences += there
		a.Missing += missing
		a.Doubled += doubled
		if missing+doubled > 0 {
			a.LostRefs = append(a.LostRefs, name)
		}
	}
	slices.Sort(a.LostRefs)
}
