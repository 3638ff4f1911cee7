//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// Keys of the faults in this file begin so. Their handlers write down other lines than those of other jobs.
const (
	pushKey = "push-" // its values are numbers: a larger one was added later
	heldKey = "held-" // a transaction holds it
)

// lone is a kind of which one job of each lane runs at a time.
const lone = "lone"

const (
	maxWait = 2 * time.Second  // of a key that is pushed back all the time
	pushers = 4                // goroutines of a process that do so, of three processes
	others  = 10 * time.Second // how late plain jobs and other keys may be beside an open transaction
	holding = 25 * time.Second // how long it is open
	heldJob = 100              // the keys that it holds: more than a worker has slots
)

// What a producer does beside its jobs, or embedded.
const (
	pushesBack = "back" // pushes a key back all the time
	pushesTwo  = "two"  // adds two values of many keys, the second when the first may be running

	pushesShared = "shared" // makes calls about keys that all producers use
)

// push does what Push says, until ctx ends.
func (p *process) push(ctx context.Context) {
	switch p.Push {
	case pushesBack:
		p.pushBack(ctx)
	case pushesShared:
		p.shareKeys(ctx)
	case pushesTwo:
		must(patiently(func(ctx context.Context) error {
			return p.q.SetLimit(ctx, "lone", durable.Limit{Kind: lone, PerLane: true, Running: 1})
		}))
		p.pushTwos(ctx)
	}
}

// pushBack adds values under one key without a pause. The producer adds a last one when all others have their
// answer.
func (p *process) pushBack(ctx context.Context) {
	add := func(ctx context.Context) error {
		return p.pushValue(ctx, durable.Job{
			Kind: kind, Key: pushKey + "all", OnKey: durable.Later, MaxWait: maxWait, FreeWhenBegun: true, After: maxWait / 2,
		}, time.Now().UnixNano())
	}
	var all group
	for range p.Pushers {
		all.run(func() {
			for ctx.Err() == nil {
				_ = patiently(add) // not with ctx: it would be on its way after the last one
			}
		})
	}
	all.wait()
	if p.Role != "pusher" {
		must(patiently(func(ctx context.Context) error { return again(ctx, add) }))
	}
}

// pushTwos adds a value under a new key some times a second, and another one within the time in which the first runs.
func (p *process) pushTwos(ctx context.Context) {
	var all group
	defer all.wait()
	for ; ctx.Err() == nil; sleep(ctx, 100*time.Millisecond) {
		all.run(func() {
			key := pushKey + p.name()
			job := durable.Job{Kind: lone, Lane: key, Key: key, OnKey: durable.Replace, FreeWhenBegun: true}
			if p.pushValue(ctx, job, 1) != nil {
				return
			}
			sleep(ctx, rand.N(1500*time.Millisecond))
			_ = again(ctx, func(ctx context.Context) error { return p.pushValue(ctx, job, 2) })
		})
	}
}

// again calls f until it returns nil or ctx ends.
func again(ctx context.Context, f func(context.Context) error) (err error) {
	for err = f(ctx); err != nil && ctx.Err() == nil; err = f(ctx) {
		sleep(ctx, 20*time.Millisecond)
	}
	return err
}

// pushValue adds a value, and writes down that it was accepted.
func (p *process) pushValue(ctx context.Context, job durable.Job, value int64) error {
	job.Payload, job.MaxAttempts = strconv.AppendInt(nil, value, 10), 1000
	_, err := p.q.Add(ctx, job)
	if err == nil {
		p.l.write(pushed, fmt.Sprintf("%s|%d|%d", job.Key, value, job.MaxWait))
	}
	return err
}

// handlePushed runs a value. The first attempt of one in three fails, and the next one is due when the value
// after it may have begun.
func (p *process) handlePushed(a *durable.Attempt) error {
	p.l.write(pushSeen, a.Job.Key+"|"+string(a.Job.Payload))
	if a.Job.Kind != lone {
		return nil
	}
	time.Sleep(500*time.Millisecond + rand.N(time.Second))
	if a.Number == 1 && p.Role != "drain" && rand.N(3) == 0 {
		return durable.RetryAfter(2*slack+rand.N(time.Second), errMeant)
	}
	return nil
}

// handleHeld fails when the transaction has the key, once.
func (p *process) handleHeld(a *durable.Attempt) error {
	if a.Number > 1 || p.Role == "drain" {
		return nil
	}
	p.l.write(heldBegan, a.Job.Key)
	time.Sleep(6 * time.Second)
	return durable.RetryAfter(time.Second, errMeant)
}

// pushKeyBack has a key pushed back all the time.
func pushKeyBack(w *world) {
	w.spec.Push, w.spec.Pushers = pushesBack, pushers
	if w.embedded {
		w.spec.Pushers = 3 * pushers
	}
	w.startAll()
	names := []string{"pusher0", "pusher1"}
	if w.embedded {
		names = nil
	}
	for _, name := range names {
		w.start(name, "pusher")
	}
	w.l.write(watchBegan, "all")
	w.until(1, time.Second, time.Second, func(int) { w.r.Happened++ })
	w.l.write(watchEnded, "all")
	for _, name := range names {
		w.stop(name)
	}
}

// killOlder kills workers that run the older of two values.
func killOlder(w *world) {
	w.spec.Push, w.spec.Kinds = pushesTwo, []string{kind, lone}
	w.r.twice = -1
	killWorkers(w)
}

// holdKeys has a transaction that has added jobs under keys, and stays open, while attempts under these keys fail that
// have freed them.
func holdKeys(w *world) {
	w.spec.SlowAdd, w.r.held = others, true
	w.startAll()
	pool := get(pgxpool.New(background, w.url()))
	defer pool.Close()
	e := get(postgres.Connect(background, pool))
	q := openQueue(background, e)
	defer q.Close()
	w.until(1, 2*time.Second, 2*time.Second, func(n int) {
		jobs, before := make([]durable.Job, heldJob), sizesOf(w.dir)
		for i := range jobs {
			jobs[i] = durable.Job{Kind: kind, Key: fmt.Sprint(heldKey, n, "-", i), FreeWhenBegun: true, MaxAttempts: 1000}
		}
		get(q.AddMany(background, jobs...))
		for end := time.Now().Add(5 * time.Second); linesIn(w.dir, "", heldBegan, before) < len(jobs) && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
		}
		w.l.write(watchBegan, "all")
		tx := get(pool.Begin(background))
		for _, job := range jobs { // not all of them may have begun
			err := pgx.BeginFunc(background, tx, func(tx pgx.Tx) error { _, err := e.AddTx(background, tx, job); return err })
			if err == nil {
				w.r.Happened++
			} else if !errors.Is(err, durable.ErrExists) {
				must(err)
			}
		}
		time.Sleep(holding)
		must(tx.Rollback(background))
		w.l.write(watchEnded, "all")
	})
}

// pushes are the lines about one key with numbered values.
type pushes struct {
	last         int64         // accepted
	bound        time.Duration // between two runs while values are added; 0: none
	adds, begins []time.Time
	beginsOf     []int64 // the values of begins
}

// add adds a line.
func (p *pushes) add(what rune, f []string, at time.Time) {
	if what == pushed {
		p.adds = append(p.adds, at)
		p.bound = time.Duration(number(f[2]))
		p.last = max(p.last, number(f[1]))
		return
	}
	p.begins = append(p.begins, at)
	p.beginsOf = append(p.beginsOf, number(f[1]))
}

// gap returns the longest time without a run between the first value and the last one.
func (p *pushes) gap() (longest time.Duration) {
	if len(p.adds) == 0 {
		return 0
	}
	from, to := p.adds[0], p.adds[0]
	for _, at := range p.adds {
		if at.After(to) {
			to = at
		}
		if at.Before(from) {
			from = at
		}
	}
	for { // the run that comes next after from
		next := to
		for _, at := range p.begins {
			if at.After(from) && at.Before(next) {
				next = at
			}
		}
		longest = max(longest, next.Sub(from))
		if from = next; !from.Before(to) {
			return longest
		}
	}
}

// olderLast reports whether an older value has begun after the last one, or the last one has not begun.
func (p *pushes) olderLast() bool {
	var newest time.Time
	for i, at := range p.begins {
		if p.beginsOf[i] >= p.last && (newest.IsZero() || at.Before(newest)) {
			newest = at
		}
	}
	if newest.IsZero() {
		return p.last > 0
	}
	for i, at := range p.begins {
		if p.beginsOf[i] < p.last && at.After(newest.Add(slack)) {
			return true
		}
	}
	return false
}

// settlePushes counts. How late plain jobs are shows how busy the machine is, which makes a run of a pushed
// key late, too.
func (e *entries) settlePushes(a *account) {
	for _, p := range e.jobs {
		for _, b := range p.begun {
			if e.watched(b.due) {
				a.Late = max(a.Late, b.at.Sub(b.due))
				if b.at.Sub(b.due) > others {
					a.LateByFar++
				}
			}
		}
	}
	for key, p := range e.pushes {
		a.Pushed += len(p.adds)
		a.PushRuns += len(p.begins)
		if p.bound > 0 {
			gap := p.gap()
			a.Gap = max(a.Gap, gap)
			if gap > p.bound+time.Second+a.Late {
				a.Broken.Starved++
			}
		}
		if p.olderLast() {
			a.Broken.Older++
			a.LostRefs = append(a.LostRefs, key)
		}
	}
}

// watched reports whether a time is within a watch.
func (e *entries) watched(at time.Time) bool {
	for i, from := range e.watches {
		if i%2 == 0 && at.After(from) && (i+1 == len(e.watches) || at.Before(e.watches[i+1])) {
			return true
		}
	}
	return false
}

// slowAdd writes down that Add has taken longer than it may.
func (p *process) slowAdd(key string, took time.Duration) {
	if p.SlowAdd > 0 && took > p.SlowAdd && !strings.HasPrefix(key, heldKey) {
		p.l.write(slowAdd, "none")
	}
}
