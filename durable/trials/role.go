//go:build unix

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/trials/setclock"
)

// envSpec is the environment variable with the spec of a process, as JSON.
const envSpec = "TRIAL"

// spec is what a process of a trial does.
type spec struct {
	Role string // embedded, server, worker, producer, tool, ruler or drain
	Name string

	Dir     string // of ledgers
	Store   string // of a server, or of an embedded engine
	URL     string // of servers; "": the engine is embedded
	Clock   string // the file that the clocks of the process follow; "": none
	Port    int    // of a server
	Routes  []int  // ports of the cluster, the server's own first
	Nodes   int    // of the cluster
	Small   bool   // the buckets are small, so that jobs cascade and buckets close all the time
	Hogs    int    // goroutines that take connections from the pool
	Lease   time.Duration
	Kinds   []string // that a worker runs, or a producer adds
	Running int      // handlers at once

	Rate      int           // jobs that a producer adds in a second
	Near, Far time.Duration // how far ahead they are due: two thirds, and a third
	Lanes     int           // of these jobs; 0: they have none
	Race      int           // of a hundred jobs: they are canceled when they are about to be claimed
	Moved     bool          // jobs are moved to other times
	Ask       bool          // Health is asked for all the time
	Least     time.Duration // a handler takes between Least and Least + Slow
	Slow      time.Duration
	Fail      int  // of a hundred attempts
	Dead      int  // of a hundred of those: the job is dead at once
	Cancel    int  // of a hundred other ones of those: the job is canceled
	Bouts     bool // begins and ends of handlers are written down, with what limits go by

	Schedules   int           // that a worker stores when it starts
	Every       time.Duration // between their occurrences
	SeriesKinds []string      // of these
	Edits       bool          // workers change the schedules all the time
	EndsSeries  bool          // the schedules end soon
}

const kind = "job"

// few is the kind that has a limit in each worker, and nobodys one that none runs until the
// end.
const (
	few     = "few"
	nobodys = "nobody's"
)

// allKinds are those that may be left at the end.
var allKinds = []string{kind, "other", few, nobodys, capped, paced}

// last makes a process run what is left, quickly, whatever it is.
func last(s *spec) {
	s.Kinds, s.Running = allKinds, 0
	s.Least, s.Slow, s.Fail, s.Dead, s.Cancel = 0, 0, 0, 0, 0
	s.Ask, s.Edits, s.Bouts, s.EndsSeries = false, false, false, true
}

// retention is longer than all that passes in a fault.
const retention = 20 * 365 * 24 * time.Hour

// process is a process of a trial, but a server.
type process struct {
	spec
	e     engine
	q     *durable.Queue
	l     *ledger
	clock clockLog
	names atomic.Int64 // of keys
	late  group        // what handlers have begun, and goes on after them
}

// play is the main function of a process of a trial.
func play(text string) {
	var s spec
	must(json.Unmarshal([]byte(text), &s))
	if s.Clock != "" {
		must(setclock.Follow(s.Clock))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if s.Role == "server" {
		srv := get(startNATS(natsOptions(s.Name, s.Store, s.Port, s.Routes)))
		<-ctx.Done()
		srv.Shutdown()
		srv.WaitForShutdown()
		return
	}
	p := &process{spec: s, e: connectRole(ctx, &s), l: openLedger(s.Dir), clock: logIn(s.Dir)}
	if s.Role != "drain" {
		p.e = &watched{engine: p.e, mute: mutePath(s.Dir, s.Name), l: p.bouts()}
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	p.q = get(durable.Open(ctx, p.e, durable.WithLease(s.Lease), durable.WithLogger(log), durable.WithRetention(retention),
		durable.WithConcurrency(cmp.Or(s.Running, concurrency)), durable.WithKindConcurrency(few, 2)))
	defer p.q.Close()
	err := attempt(func() { p.do(ctx, stop) })
	p.l.write(peace, "end")
	must(err)
}

// bouts returns the ledger if it is to tell what limits go by. What is run at the end is
// watched by how its ledger grows, so it tells no more than it has to.
func (p *process) bouts() *ledger {
	if p.Bouts {
		return p.l
	}
	return nil
}

// do does what the role is, until ctx ends. A worker that fails ends the rest of the process,
// too: what supervises it starts it again.
func (p *process) do(ctx context.Context, stop func()) {
	var all group
	defer all.wait()
	if p.Role == "embedded" || p.Role == "producer" {
		all.run(func() { p.produce(ctx) })
	}
	if p.Ask {
		all.run(func() { p.watchHealth(ctx) })
	}
	switch p.Role {
	case "tool":
		p.operate(ctx)
	case "ruler":
		p.rule(ctx)
	case "producer":
	default:
		defer stop()
		defer p.late.wait()
		p.work(ctx, &all)
	}
}

// work runs jobs, and stores schedules first, as a program does.
func (p *process) work(ctx context.Context, all *group) {
	for _, kind := range p.Kinds {
		p.q.Handle(kind, p.handle)
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	if p.Role == "drain" {
		all.run(func() {
			defer cancel()
			p.awaitEmpty(ctx)
			p.listDead(ctx)
		})
	}
	p.storeSchedules(ctx)
	if p.Edits {
		all.run(func() { p.editSchedules(ctx) })
	}
	must(p.q.Run(running))
}

var errMeant = errors.New("it is meant to fail")

func (p *process) handle(_ context.Context, a *durable.Attempt) error {
	due := a.Due
	if a.Number == 1 && !p.Moved && !a.Signaled && due.Before(a.Job.At) {
		due = a.Job.At
	}
	isEarly := p.clock.isEarly(due)
	ref := string(a.Ref)
	p.l.write(began, ref)
	if p.Bouts {
		id := fmt.Sprintf("%s/%d", ref, a.Number)
		p.l.write(boutBegan, a.Job.Kind+"|"+a.Job.Lane+"|"+id)
		defer p.l.write(boutEnded, id)
	}
	p.noteKeys(a)
	if a.Schedule != "" {
		p.l.write(occurred, fmt.Sprintf("%s|%d|%s", a.Schedule, a.Occurrence.UnixMicro(), ref))
	}
	if isEarly {
		p.l.write(early, ref)
	}
	fail := p.Fail
	if isKeyed(a) && p.Role != "drain" { // so that there are attempts to signal, and keys to take again
		time.Sleep(rand.N(200 * time.Millisecond))
		fail = max(fail, 30)
	}
	time.Sleep(p.Least + rand.N(cmp.Or(p.Slow, 5*time.Millisecond)))
	if rand.N(100) >= fail {
		p.l.write(finished, ref)
		return nil
	}
	p.l.write(failed, ref)
	if rand.N(100) < p.Dead {
		return durable.Discard(errMeant)
	}
	if rand.N(100) < p.Cancel {
		p.late.run(func() {
			time.Sleep(rand.N(100 * time.Millisecond))
			p.cancel(a.Ref)
		})
	}
	return durable.RetryAfter(500*time.Millisecond+rand.N(time.Second), errMeant)
}

// produce adds jobs that are due soon, or a cascade away, and cancels a tenth of them.
func (p *process) produce(ctx context.Context) {
	t := time.NewTicker(time.Second / time.Duration(p.Rate))
	defer t.Stop()
	var all group
	defer all.wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			all.run(func() {
				switch n := rand.N(20); {
				case n > 1:
					p.produceOne(ctx)
				case n == 0:
					p.produceSignaled(ctx)
				default:
					p.debounce(ctx)
				}
			})
		}
	}
}

func (p *process) kind() string { return p.Kinds[rand.N(len(p.Kinds))] }

// lane returns a lane, without which no limit of lanes covers a job.
func (p *process) lane() string {
	if p.Lanes == 0 {
		return ""
	}
	return fmt.Sprint("lane", rand.N(p.Lanes))
}

func (p *process) produceOne(ctx context.Context) {
	job := durable.Job{Kind: p.kind(), Lane: p.lane(), After: rand.N(p.Near), MaxAttempts: 1000}
	if rand.N(3) == 0 {
		job.After = rand.N(p.Far)
	}
	if rand.N(20) == 0 {
		job.Key = fmt.Sprint(rand.N(1000))
	}
	ref, err := p.q.Add(ctx, job)
	switch {
	case errors.Is(err, durable.ErrExists) && job.Key == "":
		p.l.write(wrong, "none")
	case err != nil && !errors.Is(err, durable.ErrExists) && ctx.Err() == nil:
		p.l.write(rejected, "none")
	}
	if err != nil {
		return
	}
	p.l.write(accepted, string(ref))
	races := rand.N(100) < p.Race
	if !races && rand.N(10) > 0 {
		return
	}
	if races || rand.N(3) == 0 {
		if sleep(ctx, job.After-rand.N(300*time.Millisecond)); ctx.Err() != nil {
			return
		}
	}
	p.cancel(ref)
}

// cancel writes down what it asks before it does, since the process may be killed before
// it has the answer. A process that receives SIGTERM waits for the answer.
func (p *process) cancel(ref durable.Ref) {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	p.l.write(asked, string(ref))
	switch ok, err := p.q.Cancel(ctx, ref); {
	case err != nil:
		p.l.write(unsure, string(ref))
	case ok:
		p.l.write(canceled, string(ref))
	default:
		p.l.write(refused, string(ref))
	}
}

// awaitEmpty returns when nothing waits or runs any more. It looks twice, since what
// fails and is stored anew while it looks may be where it does not.
func (p *process) awaitEmpty(ctx context.Context) {
	for seen := 0; ctx.Err() == nil && seen < 2; time.Sleep(time.Second) {
		if seen++; !p.isEmpty(ctx) {
			seen = 0
		}
	}
}

// isEmpty looks for the first job only: a list of all takes the time that they need to run.
func (p *process) isEmpty(ctx context.Context) bool {
	for info, err := range p.q.All(ctx, durable.Filter{}) {
		if err != nil || info.State != durable.Dead {
			return false
		}
	}
	return true
}

// listDead writes down what is dead.
func (p *process) listDead(ctx context.Context) {
	for info, err := range p.q.All(ctx, durable.Filter{State: durable.Dead}) {
		must(err)
		p.l.write(listed, string(info.Ref))
	}
}

// watchHealth asks for the Queue's health all the time. Its answer may be anything, but it
// has to come.
func (p *process) watchHealth(ctx context.Context) {
	for ctx.Err() == nil {
		answered := time.AfterFunc(patience/2, func() { p.l.write(silent, "none") })
		try, cancel := context.WithTimeout(ctx, time.Second)
		_ = p.q.Health(try)
		cancel()
		answered.Stop()
		time.Sleep(100 * time.Millisecond)
	}
}

// callers is how many operators there are in a process of the role tool.
const callers = 4

// operate lists, looks up, cancels, moves and redrives jobs, as operators do, until ctx ends.
func (p *process) operate(ctx context.Context) {
	var all group
	defer all.wait()
	for range callers {
		all.run(func() {
			for ; ctx.Err() == nil; time.Sleep(rand.N(200 * time.Millisecond)) {
				p.operateOn(ctx, durable.Filter{State: durable.State(rand.N(int(durable.Dead) + 1))})
			}
		})
	}
}

// operateOn changes some of the jobs. They may have changed since it read them, so most errors are
// valid answers. The ledgers have the promises.
func (p *process) operateOn(ctx context.Context, f durable.Filter) {
	n := 0
	for info, err := range p.q.All(ctx, f) {
		if n++; err != nil || n > 2000 {
			return
		}
		if rand.N(20) > 0 {
			continue
		}
		switch rand.N(6) {
		case 0:
			p.cancel(info.Ref)
		case 1:
			p.q.Get(ctx, info.Ref)
		case 2:
			p.q.Reschedule(ctx, info.Ref, time.Now().Add(rand.N(3*time.Second)))
		case 3:
			lookup(ctx, p.e, fmt.Sprint(rand.N(1000)))
		default:
			p.q.Redrive(ctx, info.Ref)
		}
	}
}

// The limits of the kinds that have some. More jobs come than they let run.
const (
	capped = "capped" // at most places at once, and perLane of each lane
	paced  = "paced"  // at most perSecond begin

	places    = 6
	perLane   = 2
	perSecond = 25
	burst     = 5
)

var limits = map[string]durable.Limit{
	"places":   {Kind: capped, Running: places},
	"per lane": {Kind: capped, PerLane: true, Running: perLane},
	"rate":     {Kind: paced, Rate: perSecond, Burst: burst},
}

// rule sets the limits, pauses this and that until ctx ends, and removes all of it.
func (p *process) rule(ctx context.Context) {
	for name, limit := range limits {
		must(p.q.SetLimit(ctx, name, limit))
	}
	p.l.write(limitsHold, "all")
	for ctx.Err() == nil {
		sleep(ctx, rand.N(3*time.Second))
		p.pause(ctx, durable.Pausable{Kind: []string{"", capped, paced}[rand.N(3)], Lane: []string{"", "lane1"}[rand.N(2)]})
	}
	p.l.write(limitsEnd, "all")
	after, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for name := range limits {
		must(p.q.SetLimit(after, name, durable.Limit{}))
	}
}

// pause pauses something for some seconds.
func (p *process) pause(ctx context.Context, what durable.Pausable) {
	patient, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(p.q.Pause(patient, what))
	p.l.write(paused, what.Kind+"|"+what.Lane)
	sleep(ctx, 3*time.Second+rand.N(2*time.Second))
	p.l.write(resumed, what.Kind+"|"+what.Lane)
	must(p.q.Resume(patient, what))
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
