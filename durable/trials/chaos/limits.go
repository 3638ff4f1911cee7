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
	"syscall"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// The kinds that have limits, and these. More jobs come than they let run.
const (
	capped = "capped" // at most places at once, and perLane of each lane
	paced  = "paced"  // at most perSecond begin

	places    = 6
	perLane   = 2
	perSecond = 25
	burst     = 5
	lanes     = "5"
)

// limits are by name.
var limits = map[string]durable.Limit{
	"places":   {Kind: capped, Running: places},
	"per lane": {Kind: capped, PerLane: true, Running: perLane},
	"rate":     {Kind: paced, Rate: perSecond, Burst: burst},
}

// harmLimited kills workers, freezes them for longer than their lease, and ends them in
// peace, while limits hold, and pauses come and go.
func (w *world) harmLimited(end time.Time) error {
	w.r.CheckTwice, w.r.CheckLimits = false, true // what was running when it was killed runs again
	w.set.rate = 80
	w.env = []string{envKinds + "=" + capped + " " + paced, envLanes + "=" + lanes, envSlow + "=400ms"}
	if w.pg == nil {
		if err := w.startServer(0); err != nil {
			return err
		}
	}
	if err := w.startClient("ruler", "ruler"); err != nil {
		return err
	}
	w.awaitWork(0)
	size := w.written()
	if err := errors.Join(w.startClients(), w.startClient("worker2", "worker")); err != nil {
		return err
	}
	w.awaitWork(size)
	for n := 0; n < 3 || time.Now().Before(end); n++ {
		time.Sleep(time.Second + rand.N(2*time.Second))
		name := "worker" + strconv.Itoa(rand.N(3))
		switch n % 3 {
		case 0:
			w.kill(name)
		case 1:
			if err := w.signal(name, syscall.SIGSTOP); err != nil {
				return err
			}
			time.Sleep(lease + rand.N(lease))
			w.r.Freezes++
			if err := w.signal(name, syscall.SIGCONT); err != nil {
				return err
			}
			continue
		default:
			w.end(name)
		}
		if err := w.startClient(name, "worker"); err != nil {
			return err
		}
	}
	return nil
}

// rule sets the limits, pauses this and that until ctx ends, and removes all of it.
func rule(ctx context.Context, q *durable.Queue, l *ledger) error {
	for name, limit := range limits {
		if err := q.SetLimit(ctx, name, limit); err != nil {
			return err
		}
	}
	l.write(limitsHold, "all")
	for ctx.Err() == nil {
		wait(ctx, rand.N(3*time.Second))
		what := durable.Pausable{Kind: []string{"", capped, paced}[rand.N(3)], Lane: []string{"", "lane1"}[rand.N(2)]}
		if err := pauseFor(ctx, q, l, what); err != nil {
			return err
		}
	}
	l.write(limitsEnd, "all")
	late, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for name := range limits {
		if err := q.SetLimit(late, name, durable.Limit{}); err != nil {
			return err
		}
	}
	return nil
}

// pauseFor pauses something for some seconds.
func pauseFor(ctx context.Context, q *durable.Queue, l *ledger, what durable.Pausable) error {
	late, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := q.Pause(late, what); err != nil {
		return err
	}
	l.write(paused, what.Kind+"|"+what.Lane)
	wait(ctx, 3*time.Second+rand.N(2*time.Second))
	l.write(resumed, what.Kind+"|"+what.Lane)
	return q.Resume(late, what)
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// bout is an attempt under limits.
type bout struct {
	by         string // the ledger
	kind, lane string
	begin, end time.Time
}

// book is what ledgers say of limits.
type book struct {
	open       map[string]*bout // by ledger and attempt
	bouts      []*bout
	beats      map[string][]time.Time // when those were asked for that have renewed the lease, by ledger
	pauses     map[string][]time.Time // by what: their begins and ends, by turns
	from, upTo time.Time              // when the limits held
}

func newBook() *book {
	return &book{open: map[string]*bout{}, beats: map[string][]time.Time{}, pauses: map[string][]time.Time{}}
}

// add adds a line of a ledger; false: it is about something else.
func (b *book) add(by string, what rune, text string, at time.Time) bool {
	switch what {
	case boutBegan:
		f := strings.SplitN(text, "|", 3) // the last one is the attempt
		one := &bout{by: by, kind: f[0], lane: f[1], begin: at}
		b.open[by+f[2]] = one
		b.bouts = append(b.bouts, one)
	case boutEnded:
		if one := b.open[by+text]; one != nil {
			one.end = at
		}
	case renewed:
		nanos, _ := strconv.ParseInt(text, 10, 64)
		b.beats[by] = append(b.beats[by], time.Unix(0, nanos))
	case paused, resumed:
		b.pauses[text] = append(b.pauses[text], at)
	case limitsHold:
		b.from = at
	case limitsEnd:
		b.upTo = at
	default:
		return false
	}
	return true
}

// leaseAt returns until when the lease of a worker holds that it has at a time: zero if it
// has none. One that was killed, or frozen, has what it runs until then.
func (b *book) leaseAt(by string, at time.Time) (until time.Time) {
	for _, beat := range b.beats[by] {
		if beat.After(at) && beat.After(until) {
			break
		}
		until = beat.Add(lease)
	}
	if until.Before(at) {
		return time.Time{}
	}
	return until
}

// account is what came of limits.
type limitsAccount struct {
	Bouts         int
	Places, Lane  int // at once, at most
	Excess        int // beginnings of the rate beyond what it lets through, at most
	Pauses        int
	PausedAndRan  int
	LimitsRemoved bool // and not before all else had ended
}

// settle counts. What a worker begins without a lease it was about to begin when it was
// frozen.
func (b *book) settle() (a limitsAccount) {
	for _, times := range b.beats {
		slices.SortFunc(times, time.Time.Compare)
	}
	a.LimitsRemoved = !b.upTo.IsZero()
	var kept []*bout
	for _, one := range b.bouts {
		until := b.leaseAt(one.by, one.begin)
		if until.IsZero() || one.begin.After(b.upTo) {
			continue
		}
		if one.end.IsZero() || one.end.After(until) {
			one.end = until
		}
		kept = append(kept, one)
	}
	slices.SortFunc(kept, func(x, y *bout) int { return x.begin.Compare(y.begin) })
	a.Bouts = len(kept)
	a.Places, a.Lane = most(kept)
	a.Excess = max(excess(kept, time.Second), excess(kept, 10*time.Second))
	a.countPaused(b, kept)
	return a
}

// most returns how many ran at once at most under the limit of places, and of one lane.
func most(all []*bout) (ofAll, ofLane int) {
	type change struct {
		at   time.Time
		by   int
		lane string
	}
	var changes []change
	for _, one := range all {
		if one.kind == capped {
			changes = append(changes, change{one.begin, 1, one.lane}, change{one.end, -1, one.lane})
		}
	}
	slices.SortFunc(changes, func(x, y change) int {
		if c := x.at.Compare(y.at); c != 0 {
			return c
		}
		return x.by - y.by
	})
	n, lanes := 0, map[string]int{}
	for _, c := range changes {
		n += c.by
		lanes[c.lane] += c.by
		ofAll, ofLane = max(ofAll, n), max(ofLane, lanes[c.lane])
	}
	return ofAll, ofLane
}

// excess returns how many begin in any time of that length beyond what the rate lets begin,
// at most. A handler may be late by slack.
func excess(all []*bout, length time.Duration) (n int) {
	var begins []time.Time
	for _, one := range all {
		if one.kind == paced {
			begins = append(begins, one.begin)
		}
	}
	allowed := burst + int(perSecond*(length+slack).Seconds())
	for i, from := range begins {
		to, _ := slices.BinarySearchFunc(begins, from.Add(length), time.Time.Compare)
		n = max(n, to-i-allowed)
	}
	return n
}

// countPaused counts what has begun later than a second after it was paused.
func (a *limitsAccount) countPaused(b *book, all []*bout) {
	for text, times := range b.pauses {
		kind, lane, _ := strings.Cut(text, "|")
		for i, from := range times {
			if i%2 == 1 {
				continue
			}
			a.Pauses++
			to := b.upTo
			if i+1 < len(times) {
				to = times[i+1]
			}
			for _, one := range all {
				if (kind == "" || kind == one.kind) && (lane == "" || lane == one.lane) && one.begin.After(from.Add(time.Second+slack)) && one.begin.Before(to) {
					a.PausedAndRan++
				}
			}
		}
	}
}

// check asks no more of the limits than that they let some run beside others: how many do
// depends on how busy the machine is. In a brief trial not even that is certain.
func (a limitsAccount) check(brief bool) error {
	switch {
	case a.Places > places || a.Lane > perLane:
		return fmt.Errorf("%d ran at once, and %d of a lane", a.Places, a.Lane)
	case a.Excess > 0:
		return fmt.Errorf("%d began beyond the rate", a.Excess)
	case a.PausedAndRan > 0:
		return fmt.Errorf("%d began though they were paused", a.PausedAndRan)
	case !a.LimitsRemoved || a.Pauses == 0 || a.Bouts == 0:
		return errors.New("the limits were not tried")
	case !brief && a.Places < 2:
		return fmt.Errorf("never did two of %d run at once: the limits were not tried", a.Bouts)
	}
	return nil
}

func (a limitsAccount) String() string {
	return fmt.Sprintf("; under limits %d attempts, at once %d and %d of a lane, beyond the rate %d, paused and ran %d in %d pauses",
		a.Bouts, a.Places, a.Lane, a.Excess, a.PausedAndRan, a.Pauses)
}
