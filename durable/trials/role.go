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
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/trials/setclock"
)

// envSpec is the environment variable with the spec of a process, as JSON.
const envSpec = "TRIAL"

// spec is what a process of a trial does.
type spec struct {
	Role string // embedded, server, worker, producer, pusher, tool, ruler or drain
	Name string

	Dir     string        // of ledgers
	Store   string        // of a server, or of an embedded engine
	URL     string        // of servers; "": the engine is embedded
	Clock   string        // the file that the clocks of the process follow; "": none
	Port    int           // of a server
	Routes  []int         // ports of the cluster, the server's own first
	Nodes   int           // of the cluster
	Sync    time.Duration // how often a server syncs; 0: every write
	Pool    int32         // the size of its pool, from which others take connections all the time; 0: it has its own
	Lease   time.Duration
	Kinds   []string // that a worker runs, or a producer adds
	Running int      // handlers at once

	Rate      int           // jobs that a producer adds in a second
	Near, Far time.Duration // how far ahead they are due: two thirds, and a third
	Lanes     int           // of these jobs; 0: they have none
	Race      int           // of a hundred jobs: they are canceled when they are about to be claimed
	Moved     bool          // jobs are moved to other times
	Retains   bool          // some jobs are kept after their end
	Ask       bool          // Health is asked for all the time
	Slow      time.Duration // that a handler takes at most; 0: some milliseconds
	Fail      int           // of a hundred attempts
	Dead      int           // of a hundred of those: the job is dead at once
	Cancel    int           // of a hundred other ones of those: the job is canceled
	Push      string        // pushesBack or pushesTwo: a producer does so, too
	Pushers   int           // goroutines that push a key back
	SlowAdd   time.Duration // an Add that takes longer is written down; 0: none is
	Bouts     bool          // begins and ends of handlers are written down, with what limits go by

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
var allKinds = []string{kind, "other", few, nobodys, capped, paced, cooled}

// last makes a process run what is left, quickly, whatever it is.
func last(s *spec) {
	s.Kinds, s.Running = append(allKinds, lone), 0
	s.Slow, s.Fail, s.Dead, s.Cancel = 0, 0, 0, 0
	s.Ask, s.Edits, s.Bouts, s.EndsSeries = false, false, false, true
}

// process is a process of a trial, but a server.
type process struct {
	spec
	q     *durable.Queue
	l     *ledger
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
	ctx, stop := signal.NotifyContext(background, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if s.Role == "server" {
		srv := startNATS(s.Name, s.Store, s.Port, s.Routes, func(o *server.Options) { o.SyncAlways, o.SyncInterval = s.Sync == 0, s.Sync })
		<-ctx.Done()
		srv.Shutdown()
		srv.WaitForShutdown()
		return
	}
	p := &process{spec: s, l: openLedger(s.Dir)}
	watched := &watched{engine: connectRole(ctx, &s), mute: mutePath(s.Dir, s.Name)}
	if s.Bouts {
		watched.l = p.l
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	p.q = openQueue(ctx, watched, durable.WithLease(s.Lease), durable.WithLogger(log), durable.WithRetention(retain),
		durable.WithConcurrency(cmp.Or(s.Running, concurrency)), durable.WithKindConcurrency(few, 2))
	defer p.q.Close()
	err := attempt(func() { p.do(ctx, stop) })
	p.l.write(peace, "end")
	must(err)
}

// do does what the role is, until ctx ends. A worker that fails ends the rest of the process,
// too: what supervises it starts it again.
func (p *process) do(ctx context.Context, stop func()) {
	var all group
	defer all.wait()
	if p.Role == "embedded" || p.Role == "producer" {
		all.run(func() { p.produce(ctx) })
		all.run(func() { p.push(ctx) })
	}
	if p.Ask {
		all.run(func() { p.watchHealth(ctx) })
	}
	switch p.Role {
	case "tool":
		p.operate(ctx)
	case "ruler":
		p.limit(ctx)
	case "pusher":
		p.push(ctx)
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
	switch {
	case strings.HasPrefix(a.Job.Key, pushKey):
		return p.handlePushed(a)
	case strings.HasPrefix(a.Job.Key, heldKey):
		return p.handleHeld(a)
	}
	due := a.Due
	if a.Number == 1 && !p.Moved && !a.Signaled && due.Before(a.Job.At) {
		due = a.Job.At
	}
	ref := string(a.Ref)
	p.l.write(began, fmt.Sprintf("%s|%d", ref, due.UnixNano()))
	if p.Bouts {
		id := fmt.Sprintf("%s/%d", ref, a.Number)
		p.l.write(boutBegan, a.Job.Kind+"|"+a.Job.Lane+"|"+id)
		defer p.l.write(boutEnded, id)
	}
	keyed := p.noteKeys(a)
	if a.Schedule != "" {
		p.l.write(occurred, fmt.Sprintf("%s|%d|%s", a.Schedule, a.Occurrence.UnixMicro(), ref))
	}
	fail := p.Fail
	if keyed && p.Role != "drain" { // so that there are attempts to signal, and keys to take again
		time.Sleep(rand.N(200 * time.Millisecond))
		fail = max(fail, 30)
	}
	time.Sleep(rand.N(cmp.Or(p.Slow, 5*time.Millisecond)))
	if err := p.mayCool(a); err != nil {
		p.l.write(failed, ref)
		return err
	}
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

// noteKeys writes down the signal or the value that an attempt has, and reports whether it is of
// produceSignaled or debounce.
func (p *process) noteKeys(a *durable.Attempt) bool {
	switch {
	case strings.HasPrefix(a.Job.Key, sharedKey):
		ran := sharedCall{op: hasRun, key: a.Job.Key, ref: a.Ref}
		ran.write(p.l)
	case a.Job.Signals:
		heard := "none"
		if a.Signaled {
			heard = string(a.Signal)
		}
		p.l.write(attempted, fmt.Sprintf("%s|%d|%s", a.Ref, a.Number, heard))
	case len(a.Job.Payload) > 0 && a.Schedule == "":
		p.l.write(valueSeen, string(a.Job.Payload))
	default:
		return false
	}
	return true
}

// produce adds jobs, most of which have no key.
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
				switch rand.N(20) {
				case 0:
					p.produceSignaled(ctx)
				case 1:
					p.debounce(ctx)
				default:
					p.produceOne(ctx)
				}
			})
		}
	}
}

// add adds a job of some kind and lane, and reports whether Add has returned a Ref.
func (p *process) add(ctx context.Context, job durable.Job) (durable.Ref, bool) {
	job.Kind, job.MaxAttempts = p.Kinds[rand.N(len(p.Kinds))], 1000
	if p.Lanes > 0 { // without a lane no limit of lanes covers a job
		job.Lane = fmt.Sprint("lane", rand.N(p.Lanes))
	}
	p.mayRetain(&job)
	asked := time.Now()
	ref, err := p.q.Add(ctx, job)
	p.slowAdd(job.Key, time.Since(asked))
	switch exists := errors.Is(err, durable.ErrExists); {
	case err == nil:
		if job.Retain > 0 {
			p.l.write(retained, string(ref))
		}
		p.l.write(accepted, string(ref))
	case exists && job.Key == "":
		p.l.write(wrong, "none")
	case !exists && ctx.Err() == nil:
		p.l.write(rejected, "none")
	}
	return ref, err == nil
}

// produceOne adds a job that is due soon, or a cascade away, and cancels a tenth of these jobs.
func (p *process) produceOne(ctx context.Context) {
	job := durable.Job{After: rand.N(p.Near)}
	if rand.N(3) == 0 {
		job.After = rand.N(p.Far)
	}
	if rand.N(20) == 0 {
		job.Key = fmt.Sprint(rand.N(1000))
	}
	ref, ok := p.add(ctx, job)
	races := rand.N(100) < p.Race
	if !ok || !races && rand.N(10) > 0 {
		return
	}
	if races || rand.N(3) == 0 {
		sleep(ctx, job.After-rand.N(300*time.Millisecond))
	}
	if ctx.Err() == nil {
		p.cancel(ref)
	}
}

// name returns a name that no process gives again.
func (p *process) name() string { return fmt.Sprint(p.l.id, "-", p.names.Add(1)) }

// produceSignaled adds a job and signals it once or twice, at any time until its deadline or
// about then. Some of these jobs are canceled then, too.
func (p *process) produceSignaled(ctx context.Context) {
	job := durable.Job{Key: p.name(), Signals: true, After: rand.N(p.Near)}
	ref, ok := p.add(ctx, job)
	if !ok {
		return
	}
	var all group
	defer all.wait()
	for n := range 1 + rand.N(2) {
		all.run(func() {
			p.sleepToward(ctx, job.After)
			payload := strconv.Itoa(n)
			p.ask(string(ref)+"|"+payload, [4]rune{signaling, signaled, signalRefused, signalUnsure},
				func(ctx context.Context) (bool, error) { return p.q.Signal(ctx, job.Key, []byte(payload)) })
		})
	}
	if rand.N(5) == 0 {
		p.sleepToward(ctx, job.After)
		p.cancel(ref)
	}
}

// sleepToward sleeps for a part of d, or for about d.
func (p *process) sleepToward(ctx context.Context, d time.Duration) {
	if rand.N(2) == 0 {
		sleep(ctx, rand.N(d+1))
	} else {
		sleep(ctx, d-150*time.Millisecond+rand.N(200*time.Millisecond))
	}
}

// debounce adds some values under one key, which has a name of its own. A value is larger than
// those before it. Found may be wrong after a lost answer, so that the ledger does not use it.
func (p *process) debounce(ctx context.Context) {
	key, free := p.name(), rand.N(2) == 0
	for value := range 2 + rand.N(5) {
		job := durable.Job{
			Key: key, OnKey: durable.Replace, FreeWhenBegun: free, After: rand.N(p.Near / 4), Payload: fmt.Appendf(nil, "%s|%d", key, value+1),
		}
		if rand.N(2) == 0 {
			job.OnKey, job.MaxWait = durable.Later, p.Near/2
		}
		if ref, ok := p.add(ctx, job); ok {
			p.l.write(valued, string(job.Payload)+"|"+string(ref))
		}
		if p.sleepToward(ctx, job.After); ctx.Err() != nil {
			return
		}
	}
}

// ask writes down a question before it asks, since the process may be killed before
// it has the answer: then true, false, or an error. A process that receives SIGTERM waits for the answer.
func (p *process) ask(id string, lines [4]rune, f func(context.Context) (bool, error)) (ok bool, err error) {
	ctx, stop := context.WithTimeout(background, 30*time.Second)
	defer stop()
	p.l.write(lines[0], id)
	switch ok, err = f(ctx); {
	case err != nil:
		p.l.write(lines[3], id)
	case ok:
		p.l.write(lines[1], id)
	default:
		p.l.write(lines[2], id)
	}
	return ok, err
}

func (p *process) cancel(ref durable.Ref) (bool, error) {
	return p.ask(string(ref), [4]rune{asked, canceled, refused, unsure}, func(ctx context.Context) (bool, error) { return p.q.Cancel(ctx, ref) })
}

// awaitEmpty returns when nothing waits or runs any more, and writes down what has ended and is kept. It looks twice, since
// what fails and is stored anew while it looks may be where it does not.
func (p *process) awaitEmpty(ctx context.Context) {
	for seen := 0; ctx.Err() == nil && seen < 2; time.Sleep(time.Second) {
		if seen++; !p.isEmpty(ctx) {
			seen = 0
		}
	}
	p.listHistory(ctx)
}

// isEmpty looks for the first job only: a list of all takes the time that they need to run. Schedules come first: a
// list may miss each occurrence of one that catches up, since none of them waits for as long as the list takes.
func (p *process) isEmpty(ctx context.Context) bool {
	if p.EndsSeries && p.Schedules > 0 {
		for info, err := range p.q.Schedules(ctx) {
			if err != nil || !info.Next.IsZero() {
				return false
			}
		}
	}
	for _, state := range []durable.State{durable.Running, durable.Waiting} {
		for range p.q.All(ctx, durable.Filter{State: state}) {
			return false // a job, or an error
		}
	}
	return true
}

// watchHealth asks for the Queue's health all the time. Its answer may be anything, but it
// has to come.
func (p *process) watchHealth(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		answered := time.AfterFunc(patience/2, func() { p.l.write(silent, "none") })
		try, cancel := context.WithTimeout(ctx, time.Second)
		_ = p.q.Health(try)
		cancel()
		answered.Stop()
	}
}

// operate lists, looks up, cancels, moves and redrives jobs, as four operators do, until ctx ends. The jobs may
// have changed since they were listed, so most errors are valid answers. The ledgers have the promises.
func (p *process) operate(ctx context.Context) {
	var all group
	defer all.wait()
	for range 4 {
		all.run(func() {
			for ; ctx.Err() == nil; time.Sleep(rand.N(200 * time.Millisecond)) {
				n := 0
				for info, err := range p.q.All(ctx, durable.Filter{State: durable.State(rand.N(int(durable.Dead) + 1))}) {
					if n++; err != nil || n > 2000 {
						break
					}
					p.operateOn(ctx, info.Ref)
				}
			}
		})
	}
}

// operateOn does something with one job in twenty.
func (p *process) operateOn(ctx context.Context, ref durable.Ref) {
	switch rand.N(120) {
	case 0:
		p.cancel(ref)
	case 1:
		_, _ = p.q.Get(ctx, ref)
	case 2:
		_, _ = p.q.Reschedule(ctx, ref, time.Now().Add(rand.N(3*time.Second)))
	case 3:
		_, _ = p.q.Lookup(ctx, fmt.Sprint(rand.N(1000)))
	case 4, 5:
		_ = p.q.Redrive(ctx, ref)
	}
}

// The limits of the kinds that have some. More jobs come than they let run.
const (
	capped = "capped" // at most permits jobs at once, and perLane of each lane
	paced  = "paced"  // at most perSecond begin

	permits   = 6
	perLane   = 2
	perSecond = 25
	burst     = 5
)

var limits = map[string]durable.Limit{
	"permits":  {Kind: capped, Running: permits},
	"per lane": {Kind: capped, PerLane: true, Running: perLane},
	"rate":     {Kind: paced, Rate: perSecond, Burst: burst},
}

// limit sets the limits, pauses this and that until ctx ends, and removes all of it.
func (p *process) limit(ctx context.Context) {
	for name, limit := range limits {
		must(p.q.SetLimit(ctx, name, limit))
	}
	p.l.write(limitsHold, "all")
	for ctx.Err() == nil {
		sleep(ctx, rand.N(3*time.Second))
		p.pause(ctx, durable.Pausable{Kind: []string{"", capped, paced}[rand.N(3)], Lane: []string{"", "lane1"}[rand.N(2)]})
	}
	p.l.write(limitsEnd, "all")
	for name := range limits {
		must(patiently(func(ctx context.Context) error { return p.q.DeleteLimit(ctx, name) }))
	}
}

// pause pauses something for some seconds.
func (p *process) pause(ctx context.Context, what durable.Pausable) {
	must(patiently(func(ctx context.Context) error { return p.q.Pause(ctx, what) }))
	p.l.write(paused, what.Kind+"|"+what.Lane)
	sleep(ctx, 3*time.Second+rand.N(2*time.Second))
	p.l.write(resumed, what.Kind+"|"+what.Lane)
	must(patiently(func(ctx context.Context) error { return p.q.Resume(ctx, what) }))
}

// patiently calls f with a context that ends after patience.
func patiently(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(background, patience)
	defer cancel()
	return f(ctx)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
