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

// addKeyed adds a job, and reports whether Add has returned a Ref.
func (p *process) addKeyed(ctx context.Context, job durable.Job) (durable.Ref, bool) {
	job.Kind, job.Lane, job.MaxAttempts = p.kind(), p.lane(), 1000
	ref, err := p.q.Add(ctx, job)
	switch {
	case err != nil && !errors.Is(err, durable.ErrExists) && ctx.Err() == nil:
		p.l.write(rejected, "none")
	case err == nil:
		p.l.write(accepted, string(ref))
	}
	return ref, err == nil
}

// name returns a name that no process gives again.
func (p *process) name() string { return fmt.Sprint(p.l.id, "-", p.names.Add(1)) }

// produceSignaled adds a job and signals it once or twice, at any time until its deadline or
// about then. Some of these jobs are canceled then, too.
func (p *process) produceSignaled(ctx context.Context) {
	job := durable.Job{Key: p.name(), Signals: true, After: rand.N(p.Near)}
	ref, ok := p.addKeyed(ctx, job)
	if !ok {
		return
	}
	var all group
	defer all.wait()
	for n := range 1 + rand.N(2) {
		all.run(func() {
			p.sleepToward(ctx, job.After)
			p.signal(string(ref), job.Key, strconv.Itoa(n))
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

// signal writes down the question before the answer, as cancel does.
func (p *process) signal(ref, key, payload string) {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	id := ref + "|" + payload
	p.l.write(signaling, id)
	switch ok, err := p.q.Signal(ctx, key, []byte(payload)); {
	case err != nil:
		p.l.write(signalUnsure, id)
	case ok:
		p.l.write(signaled, id)
	default:
		p.l.write(signalRefused, id)
	}
}

// debounce adds some values under one key, which has a name of its own. A value is larger than
// those before it. Found may be wrong after a lost answer, so that the ledger does not use it.
func (p *process) debounce(ctx context.Context) {
	key, free := p.name(), rand.N(2) == 0
	for value := range 2 + rand.N(5) {
		job := durable.Job{
			Key: key, OnKey: durable.Replace, FreeWhenBegun: free, After: rand.N(p.Near / 4), Payload: fmt.Appendf(nil, "%s|%d", key, value),
		}
		if rand.N(2) == 0 {
			job.OnKey, job.MaxWait = durable.Later, p.Near/2
		}
		if ref, ok := p.addKeyed(ctx, job); ok {
			p.l.write(valued, string(job.Payload)+"|"+string(ref))
		}
		p.sleepToward(ctx, job.After)
		if ctx.Err() != nil {
			return
		}
	}
}

// isKeyed reports whether an attempt is of produceSignaled or debounce.
func isKeyed(a *durable.Attempt) bool {
	return a.Job.Signals || len(a.Job.Payload) > 0 && a.Schedule == ""
}

// noteKeys writes down the signal or the value that an attempt has.
func (p *process) noteKeys(a *durable.Attempt) {
	if a.Job.Signals {
		heard := "none"
		if a.Signaled {
			heard = string(a.Signal)
		}
		p.l.write(attempted, fmt.Sprintf("%s|%d|%s", a.Ref, a.Number, heard))
	}
	if isKeyed(a) && !a.Job.Signals {
		p.l.write(valueSeen, string(a.Job.Payload))
	}
}

// hearing is an attempt of a job that takes signals.
type hearing struct {
	at     time.Time
	number int
	signal string // "none"
}

// call is a call of Signal, and its answer.
type call struct {
	answer rune // signaling: there is none
	at     time.Time
}

// signals are the lines about one job that takes signals.
type signals struct {
	calls    map[string]*call // by payload
	attempts []hearing
}

// values are the lines about one key whose values are debounced.
type values struct {
	last, seen int // -1
	ref        string
}

// keyBook is the lines of ledgers about signals and values.
type keyBook struct {
	signals   map[string]*signals // by Ref
	values    map[string]*values  // by key
	debounced map[string]bool     // by Ref: accepted under such a key
}

func newKeyBook() *keyBook {
	return &keyBook{signals: map[string]*signals{}, values: map[string]*values{}, debounced: map[string]bool{}}
}

// add adds a line of a ledger; false: it is about something else.
func (b *keyBook) add(what rune, text string, at time.Time) bool {
	f := strings.Split(text, "|")
	switch what {
	case signaling, signaled, signalRefused, signalUnsure:
		s := b.of(f[0])
		if s.calls[f[1]] == nil || what != signaling {
			s.calls[f[1]] = &call{what, at}
		}
	case attempted:
		s := b.of(f[0])
		number, _ := strconv.Atoi(f[1])
		s.attempts = append(s.attempts, hearing{at, number, f[2]})
	case valued, valueSeen:
		v := b.values[f[0]]
		if v == nil {
			v = &values{last: -1, seen: -1}
			b.values[f[0]] = v
		}
		value, _ := strconv.Atoi(f[1])
		if what == valueSeen {
			v.seen = max(v.seen, value)
			break
		}
		b.debounced[f[2]] = true
		if value > v.last {
			v.last, v.ref = value, f[2]
		}
	default:
		return false
	}
	return true
}

// has reports whether a job takes signals or has a debounced value.
func (b *keyBook) has(ref string) bool { return b.debounced[ref] || b.signals[ref] != nil }

func (b *keyBook) of(ref string) *signals {
	s := b.signals[ref]
	if s == nil {
		s = &signals{calls: map[string]*call{}}
		b.signals[ref] = s
	}
	return s
}

// keyAccount is the verdict on signals and values.
type keyAccount struct {
	Signaled, SignalRefused, SignalUnknown int // answers; unknown: none came

	Unheard   int // true was answered, and the next attempt has no signal
	Overheard int // false was answered, and an attempt has the signal

	Values, Keys int // that were added
	Unseen       int // keys without a run that has the last value, or a later one whose answer was lost
}

// settle counts. The jobs that were canceled, or may be, need no attempt any more.
func (b *keyBook) settle(jobs map[string]*past) (a keyAccount) {
	gone := func(ref string) bool {
		p := jobs[ref]
		return p != nil && p.n[canceled]+p.n[unsure] > 0
	}
	a.Values, a.Keys = len(b.debounced), len(b.values)
	for _, v := range b.values {
		if v.seen < v.last && !gone(v.ref) {
			a.Unseen++
		}
	}
	for ref, s := range b.signals {
		slices.SortFunc(s.attempts, func(x, y hearing) int { return x.at.Compare(y.at) })
		for payload, c := range s.calls {
			has, heard := s.heard(payload, c.at)
			switch {
			case c.answer == signaled:
				a.Signaled++
				if !heard && (has || !gone(ref)) {
					a.Unheard++
				}
			case c.answer == signalRefused:
				a.SignalRefused++
				if has {
					a.Overheard++
				}
			default:
				a.SignalUnknown++
			}
		}
	}
	return a
}

// heard reports whether an attempt has a signal, and whether all have it that began after a time,
// at least one. An attempt of a number that an earlier one had was begun before that: its
// process was stopped for a while, and has lost its lease.
func (s *signals) heard(payload string, since time.Time) (some, all bool) {
	all = true
	highest := 0
	for _, h := range s.attempts {
		has := h.signal == payload
		some = some || has
		all = all && (has || h.number <= highest || h.at.Before(since))
		highest = max(highest, h.number)
	}
	return some, some && all
}

func (a keyAccount) check(brief bool) error {
	switch {
	case a.Unheard+a.Overheard > 0:
		return fmt.Errorf("%d signals were answered true and not seen by the next attempt, and %d false and seen", a.Unheard, a.Overheard)
	case a.Unseen > 0:
		return fmt.Errorf("the last values of %d keys were seen by no run", a.Unseen)
	case !brief && (a.Signaled == 0 || a.SignalRefused == 0 || a.Keys == 0):
		return errors.New("signals and keys were not tried")
	}
	return nil
}

func (a keyAccount) String() string {
	return fmt.Sprintf("; signals %d true, %d false, %d without an answer: true and not seen by the next attempt %d, false and seen %d; %d values of %d keys, last value not seen %d",
		a.Signaled, a.SignalRefused, a.SignalUnknown, a.Unheard, a.Overheard, a.Values, a.Keys, a.Unseen)
}
