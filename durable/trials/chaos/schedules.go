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
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// What a process is told of schedules.
const (
	envSchedules = "CHAOS_SCHEDULES" // how many it stores when it starts
	envEvery     = "CHAOS_EVERY"     // the interval of each
	envEdits     = "CHAOS_EDITS"     // if set, workers change them all the time
)

// planned is the schedules that a process stores.
type planned struct {
	q     *durable.Queue
	n     int
	every time.Duration
	kinds []string
}

func plannedFor(q *durable.Queue) planned {
	return planned{q, number(envSchedules, 0), span(envEvery), kindsOf("worker")}
}

// store stores the i-th schedule, or changes it. It waits for a store that does not answer now.
func (p *planned) store(ctx context.Context, i int, payload string, opts ...durable.ScheduleOption) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	name = "s" + strconv.Itoa(i)
	// All of those that are missed run, so that none may be left out.
	opts = append(opts, durable.OnMissed(durable.RunEach(1<<20)))
	job := durable.Job{Kind: p.kinds[i%len(p.kinds)], MaxAttempts: 1000, Payload: []byte(payload)}
	return name, p.q.Schedule(ctx, name, "@every "+p.every.String(), job, opts...)
}

// storeAll stores schedules as each process of a release that knows them does when it
// starts, and notes what is promised: an occurrence for each interval until the end. Only
// the process that runs what is left knows the end, which comes soon.
func (p *planned) storeAll(ctx context.Context, l *ledger, atEnd bool) error {
	const atOnce = 16
	errs := make([]error, atOnce)
	var wg sync.WaitGroup
	for k := range atOnce {
		wg.Go(func() {
			for i := k; i < p.n && errs[k] == nil; i += atOnce {
				errs[k] = p.promise(ctx, l, i, atEnd)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// promise stores one. It chooses a later end if that which it chose has passed meanwhile.
func (p *planned) promise(ctx context.Context, l *ledger, i int, atEnd bool) error {
	for {
		var until int64
		var opts []durable.ScheduleOption
		if atEnd {
			end := time.Now().Add(2 * time.Second)
			until, opts = end.UnixMicro(), append(opts, durable.EndAt(end))
		}
		name, err := p.store(ctx, i, "", opts...)
		if err == nil {
			l.write(promised, fmt.Sprintf("%s|%d|%d", name, until, p.every.Microseconds()))
		}
		if !atEnd || !errors.Is(err, durable.ErrInvalid) {
			return err
		}
	}
}

// edit changes schedules all the time, and keeps their times.
func (p *planned) edit(ctx context.Context) {
	for n := 0; p.n > 0 && ctx.Err() == nil; n++ {
		if _, err := p.store(ctx, rand.N(p.n), strconv.Itoa(n), durable.Jitter(rand.N(p.every/2))); err == nil { // the server is there
			time.Sleep(rand.N(50 * time.Millisecond))
		}
	}
}

// awaitPromised waits until all schedules are stored, but not for ever.
func (w *world) awaitPromised() {
	for began := time.Now(); !w.promised() && time.Since(began) < patience; {
		time.Sleep(100 * time.Millisecond)
	}
}

func (w *world) promised() bool {
	a, err := audit(w.dir)
	return err == nil && a.Series >= w.r.Scheduled
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

// promise returns what processes are told that store so many schedules. The process that runs
// what is left ends them.
func (w *world) promise(n int, every time.Duration) []string {
	w.r.CheckTwice = false // what was running when it was killed runs again
	w.r.Scheduled = n
	w.known = []string{envSchedules + "=" + strconv.Itoa(n), envEvery + "=" + every.String()}
	return slices.Clone(w.known)
}

// edited is a fault beside workers that change schedules all the time.
func edited(fault func(*world, time.Time) error) func(*world, time.Time) error {
	return func(w *world, end time.Time) error {
		w.env = append(w.promise(20, 500*time.Millisecond), envEdits+"=yes")
		return fault(w, end)
	}
}

// killScheduled kills workers with a thousand schedules, one of which is due each
// millisecond, whether or not they know them.
func (w *world) killScheduled(end time.Time) error {
	n := 1000
	if w.set.brief {
		n = 40
	}
	if err := w.startAll(); err != nil {
		return err
	}
	known := w.promise(n, time.Second)
	if err := w.startClient("worker2", "worker", known...); err != nil {
		return err
	}
	w.awaitPromised()
	w.end("worker2") // nobody who is left knows them, but for those that begin anew
	for n := 0; n < 2 || time.Now().Before(end); n++ {
		time.Sleep(time.Second + rand.N(3*time.Second))
		name := "worker" + strconv.Itoa(n%2)
		w.kill(name)
		if err := w.startClient(name, "worker", known[:2*(n%2)]...); err != nil {
			return err
		}
	}
	return nil
}

// deploy rolls a release out that knows schedules, and back to one that does not, again and
// again. Half of them are of a kind that the older release has no handler for either. The
// first process that knows them is there for a moment.
func (w *world) deploy(end time.Time) error {
	if err := w.startAll(); err != nil {
		return err
	}
	known := append(w.promise(20, 500*time.Millisecond), envKinds+"="+kind+" other")
	w.known = known
	for n := 0; n < 2 || time.Now().Before(end); n++ {
		env := known
		if n%2 == 1 {
			w.awaitPromised()
			env = nil // back
		}
		for _, name := range []string{"worker0", "worker1"} {
			if err := w.startClient("worker2", "worker", env...); err != nil {
				return err
			}
			time.Sleep(500*time.Millisecond + rand.N(time.Second))
			w.end(name)
			w.procs[name] = w.procs["worker2"]
			delete(w.procs, "worker2")
		}
		w.r.Provoked++
	}
	return nil
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
