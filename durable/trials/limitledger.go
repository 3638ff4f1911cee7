//go:build unix

package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

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
	tokens     []time.Time            // when those come that were given
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
	case token:
		nanos, _ := strconv.ParseInt(text, 10, 64)
		b.tokens = append(b.tokens, time.Unix(0, nanos))
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
	sortByBegin(kept)
	a.Bouts = len(kept)
	a.Places, a.Lane = most(kept)
	a.Excess = max(excess(kept, time.Second), excess(kept, 10*time.Second))
	a.countPaused(b, kept)
	return a
}

func sortByBegin(all []*bout) {
	slices.SortFunc(all, func(x, y *bout) int { return x.begin.Compare(y.begin) })
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
func excess(all []*bout, length time.Duration) int {
	return max(0, mostIn(begins(all, paced), length)-burst-int(perSecond*(length+slack).Seconds()))
}

// begins returns when the attempts of a kind began, of some that are sorted by that.
func begins(all []*bout, kind string) (at []time.Time) {
	for _, one := range all {
		if one.kind == kind {
			at = append(at, one.begin)
		}
	}
	return at
}

// mostIn returns how many of some times, which are sorted, are in one span at most.
func mostIn(at []time.Time, span time.Duration) (most int) {
	for i, from := range at {
		to, _ := slices.BinarySearchFunc(at, from.Add(span), time.Time.Compare)
		most = max(most, to-i)
	}
	return most
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
