//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/trials/setclock"
)

// sharedKey begins the keys that clients of all servers use at one time.
const sharedKey = "shared-"

const (
	sharedAhead = 20 * time.Second // at most, of jobs under these keys: some wait from before the cut until after the election
	sharedAge   = 30               // seconds, until other keys are used
	sharedWait  = 10 * time.Second // for an answer
	oldInfo     = 20 * time.Second // by which an answer of Lookup may be old
)

// shareKeys makes calls about keys that all producers use, until ctx ends.
func (p *process) shareKeys(ctx context.Context) {
	var all group
	defer all.wait()
	for ; ctx.Err() == nil; sleep(ctx, 50*time.Millisecond) {
		all.run(p.useShared)
	}
}

// The calls about a shared key, and their answers.
const (
	onSignal, onLookup, onCancel = "signal", "lookup", "cancel"
	hasRun                       = "ran" // no call: a handler was called for a job under the key

	yes, no, unknown = "yes", "no", "unknown" // no is false, ErrExists and ErrNotFound
)

// onAdd are the names of Add with each OnKey. Only half of the keys have those that replace.
var onAdd = map[durable.OnKey]string{durable.Keep: "keep", durable.Refuse: "refuse", durable.Replace: "replace", durable.Later: "later"}

// useShared makes a call about a key, and writes down what it was answered, and when it began.
func (p *process) useShared() {
	ctx, stop := context.WithTimeout(background, sharedWait)
	defer stop()
	n := rand.N(12)
	c := sharedCall{key: fmt.Sprint(sharedKey, time.Now().Unix()/sharedAge, "-", n), from: setclock.Real()}
	switch op := rand.N(10); op {
	case 0:
		c.op = onSignal
		ok, err := p.q.Signal(ctx, c.key, []byte("signal"))
		c.answerWith(ok, err)
	case 1, 2, 3:
		c.op = onLookup
		info, err := p.q.Lookup(ctx, c.key)
		c.ref = info.Ref
		if c.answerWith(true, err); err == nil && op > 1 {
			c.write(p.l)
			c = sharedCall{op: onCancel, key: c.key, ref: c.ref, from: setclock.Real()}
			c.answerWith(p.cancel(c.ref))
		}
	default:
		onKey := []durable.OnKey{durable.Keep, durable.Refuse, durable.Replace, durable.Later}[rand.N(2+n%2*2)]
		job := durable.Job{Kind: kind, Key: c.key, OnKey: onKey, Signals: true, After: rand.N(sharedAhead), MaxAttempts: 1000, Found: &c.found}
		c.op, c.due = onAdd[onKey], c.from.Add(job.After)
		if onKey == durable.Later {
			job.MaxWait, c.due = sharedAhead/2, c.from
		}
		var err error
		c.ref, err = p.q.Add(ctx, job)
		if c.answerWith(true, err); c.stores() {
			p.l.write(accepted, string(c.ref))
		}
	}
	c.write(p.l)
}

// sharedCall is a call about a shared key. A job that Later stores is due at any time.
type sharedCall struct {
	op, answer, key string
	ref, found      durable.Ref
	from, to, due   time.Time
}

func (c *sharedCall) answerWith(ok bool, err error) {
	switch {
	case errors.Is(err, durable.ErrExists), errors.Is(err, durable.ErrNotFound), err == nil && !ok:
		c.answer = no
	case err != nil:
		c.answer = unknown
	default:
		c.answer = yes
	}
}

func (c *sharedCall) write(l *ledger) {
	l.write(shared, fmt.Sprintf("%s|%s|%s|%s|%s|%d|%d", c.key, c.op, c.answer, c.ref, c.found, c.from.UnixNano(), c.due.UnixNano()))
}

// readShared returns the call that a line says.
func readShared(f []string, to time.Time) *sharedCall {
	return &sharedCall{key: f[0], op: f[1], answer: f[2], ref: durable.Ref(f[3]), found: durable.Ref(f[4]), to: to,
		from: time.Unix(0, number(f[5])), due: time.Unix(0, number(f[6]))}
}

// stores reports whether the call has stored a job. One that has gone into a job that was due has not.
func (c *sharedCall) stores() bool { return c.isAdd() && c.answer == yes && c.ref != c.found }

func (c *sharedCall) isAdd() bool { return c.op == "keep" || c.op == "refuse" || c.mayReplace() }

func (c *sharedCall) mayReplace() bool { return c.op == "replace" || c.op == "later" }

// before reports whether what the call may have done was done before a time. Without an answer it may be done at any later time.
func (c *sharedCall) before(at time.Time) bool { return c.answer != unknown && c.to.Before(at) }

// sharedJob is a job under a shared key. It was stored between two times. It does not have the key after gone; zero: it may have it.
type sharedJob struct {
	ref           durable.Ref
	from, to, due time.Time
	inherits      bool // a signal, if the job had one that it has replaced
	gone          time.Time
}

func (j *sharedJob) goneBefore(at time.Time) bool { return !j.gone.IsZero() && j.gone.Before(at) }

func (j *sharedJob) goneBy(at time.Time) {
	if j.gone.IsZero() || at.Before(j.gone) {
		j.gone = at
	}
}

// sharedCalls are the calls about one key.
type sharedCalls []*sharedCall

// jobs returns the jobs that are known, and whether there is another: the answer of its Add was lost.
func (all sharedCalls) jobs() (jobs map[durable.Ref]*sharedJob, others bool) {
	jobs = map[durable.Ref]*sharedJob{}
	for _, c := range all {
		if !c.stores() {
			continue
		}
		j := jobs[c.ref]
		if j == nil {
			j = &sharedJob{ref: c.ref, from: c.from, to: c.to, due: c.due}
			jobs[c.ref] = j
		}
		j.inherits = j.inherits || c.mayReplace()
	}
	for _, c := range all {
		others = others || c.ref != "" && jobs[c.ref] == nil || c.found != "" && jobs[c.found] == nil
		if j := jobs[c.ref]; j != nil && c.op == onCancel && c.answer == yes {
			j.goneBy(c.to)
		}
	}
	for _, j := range jobs {
		for _, next := range jobs {
			if next.from.After(j.to) {
				j.goneBy(next.to)
			}
		}
	}
	return jobs, others
}

// waits reports whether a job certainly waits from one time to another.
func (all sharedCalls) waits(j *sharedJob, from, to time.Time) bool {
	if !j.to.Before(from) || !j.due.After(to.Add(slack)) {
		return false
	}
	for _, c := range all {
		if c.answer == no || !c.from.Before(to) {
			continue
		}
		switch {
		case c.op == onSignal && (j.inherits || !c.before(j.from)), c.op == onCancel && c.ref == j.ref, c.mayReplace() && c.ref != j.ref && !c.before(j.from):
			return false
		}
	}
	return true
}

// stays reports whether nothing but an attempt can have ended a job after a time.
func (all sharedCalls) stays(ref durable.Ref, at time.Time) bool {
	for _, c := range all {
		if c.answer != no && (c.op == onCancel && c.ref == ref || c.mayReplace()) && !c.before(at) {
			return false
		}
	}
	return true
}

// isWrong reports whether an answer was right at no moment of the call. An answer of Lookup may be old, but not by more than oldInfo.
func (all sharedCalls) isWrong(c *sharedCall, jobs map[durable.Ref]*sharedJob, others bool, ran func(durable.Ref, time.Time) bool) bool {
	held, waiting := others, false
	for _, j := range jobs {
		held = held || j.from.Before(c.to) && !j.goneBefore(c.from)
		waiting = waiting || j.ref != c.ref && all.waits(j, c.from, c.to)
	}
	j := jobs[c.ref]
	switch {
	case c.op == onCancel:
		return c.answer == no && j != nil && all.waits(j, c.from, c.to)
	case c.op == onLookup && c.answer == yes:
		return j != nil && j.goneBefore(c.from.Add(-oldInfo))
	case c.op == onSignal || c.op == onLookup:
		return c.answer == no && waiting
	case c.answer == no:
		return !held
	case c.stores():
		return !c.mayReplace() && waiting
	case c.op == "keep" && c.answer == yes: // an attempt begins that knows of the call
		return j != nil && j.goneBefore(c.from) || !ran(c.ref, c.from) && all.stays(c.ref, c.from)
	}
	return false
}

// sharedAnswers are how many there are.
type sharedAnswers struct{ Calls, Unknown, Stored, Kept, Exists, Refused, NotFound int }

func (a *sharedAnswers) add(c *sharedCall) {
	a.Calls++
	switch {
	case c.answer == unknown:
		a.Unknown++
	case c.stores():
		a.Stored++
	case c.op == "keep" && c.answer == yes:
		a.Kept++
	case c.answer == yes:
	case c.op == onLookup:
		a.NotFound++
	case c.isAdd():
		a.Exists++
	default:
		a.Refused++
	}
}

// settleShared counts.
func (e *entries) settleShared(a *account) {
	ran := func(ref durable.Ref, since time.Time) bool {
		p := e.jobs[string(ref)]
		return p != nil && p.lastBegan.After(since)
	}
	for _, calls := range e.shared {
		all := *calls
		jobs, others := all.jobs()
		for _, c := range all {
			if c.op == hasRun {
				continue
			}
			a.Shared.add(c)
			if all.isWrong(c, jobs, others, ran) {
				a.Broken.Deposed++
				a.LostRefs = append(a.LostRefs, fmt.Sprintf("%s of %s at %d", c.op, c.key, c.from.UnixNano()))
			}
		}
		for ref, j := range jobs {
			if !ran(ref, j.from) && all.stays(ref, j.from) {
				a.Broken.Lost++
				a.LostRefs = append(a.LostRefs, string(ref))
			}
		}
	}
}
