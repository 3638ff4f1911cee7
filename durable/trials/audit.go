//go:build unix

package main

import (
	"cmp"
	"maps"
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
	open   entriesOf[*bout] // by ledger and attempt
	bouts  []*bout
	beats  entriesOf[[]time.Time] // when those were asked for that have renewed the lease, by ledger
	pauses entriesOf[[]time.Time] // by what: their begins and ends, by turns
	upTo   time.Time              // when the limits held no more

	cooldowns []cooldown
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// add adds a line of a ledger about limits.
func (b *book) add(by string, what rune, text string, at time.Time) {
	note := func(times *[]time.Time, at time.Time) { *times = append(*times, at) }
	switch what {
	case boutBegan:
		f := strings.Split(text, "|")
		b.bouts = append(b.bouts, &bout{by: by, kind: f[0], lane: f[1], begin: at})
		*b.open.of(by + f[2]) = b.bouts[len(b.bouts)-1]
	case boutEnded:
		if one := *b.open.of(by + text); one != nil {
			one.end = at
		}
	case renewed:
		note(b.beats.of(by), time.Unix(0, number(text)))
	case paused, resumed:
		note(b.pauses.of(text), at)
	case limitsEnd:
		b.upTo = at
	case cooldownStored:
		b.cooldowns = append(b.cooldowns, readCooldown(text, at))
	}
}

// leaseAt returns until when the lease of a worker holds that it has at a time: zero if it
// has none. One that was killed, or frozen, has what it runs until then.
func (b *book) leaseAt(by string, at time.Time) (until time.Time) {
	for _, beat := range *b.beats.of(by) {
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

// settle counts. What a worker begins without a lease it was about to begin when it was
// frozen.
func (b *book) settle(a *account) {
	for _, times := range b.beats {
		slices.SortFunc(*times, time.Time.Compare)
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
	a.Permits, a.Lane = most(kept)
	a.Broken.TooMany = max(0, a.Permits-permits) + max(0, a.Lane-perLane)
	for _, length := range []time.Duration{time.Second, 10 * time.Second} { // a handler may be late by slack
		a.Broken.Excess = max(a.Broken.Excess, mostIn(begins(kept, paced), length)-burst-int(perSecond*(length+slack).Seconds()))
	}
	b.countPaused(a, kept)
	b.countCooled(a, kept)
}

// most returns how many ran at once at most under the limit of permits, and in one lane.
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
	slices.SortFunc(changes, func(x, y change) int { return cmp.Or(x.at.Compare(y.at), x.by-y.by) })
	n, lanes := 0, map[string]int{}
	for _, c := range changes {
		n += c.by
		lanes[c.lane] += c.by
		ofAll, ofLane = max(ofAll, n), max(ofLane, lanes[c.lane])
	}
	return ofAll, ofLane
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

// mostIn returns how many of some times, which are sorted, are in one period of a length at most.
func mostIn(at []time.Time, length time.Duration) (most int) {
	for i, from := range at {
		to, _ := slices.BinarySearchFunc(at, from.Add(length), time.Time.Compare)
		most = max(most, to-i)
	}
	return most
}

// countPaused counts what has begun later than a second after it was paused.
func (b *book) countPaused(a *account, all []*bout) {
	for text, times := range b.pauses {
		kind, lane, _ := strings.Cut(text, "|")
		for pause := range slices.Chunk(*times, 2) { // the last may have no end
			a.Pauses++
			from, to := pause[0].Add(time.Second+slack), append(pause[1:], b.upTo)[0]
			for _, one := range all {
				covers := (kind == "" || kind == one.kind) && (lane == "" || lane == one.lane)
				if covers && one.begin.After(from) && one.begin.Before(to) {
					a.Broken.PausedAndRan++
				}
			}
		}
	}
}

// schedule is what the ledgers say of one.
type schedule struct {
	until, every int64            // microseconds; until is 0 if nobody has ended it
	began        entriesOf[int64] // occurrences, by time and Ref: their times in microseconds
}

// settle counts the occurrences that there were, those that are missing between the first
// and the end of the schedule, and those that were stored twice.
func (s *schedule) settle(a *account, name string) {
	times := map[int64]bool{}
	for _, at := range s.began {
		times[*at] = true
	}
	missing := 0
	if len(times) == 0 || s.until == 0 {
		missing = 1
	} else {
		for at := slices.Min(slices.Collect(maps.Keys(times))); at < s.until; at += s.every {
			if !times[at] {
				missing++
			}
		}
	}
	a.Schedules++
	a.Occurrences += len(times)
	a.Broken.Missing += missing
	a.Broken.Doubled += len(s.began) - len(times)
	if missing > 0 || len(s.began) > len(times) {
		a.LostRefs = append(a.LostRefs, name)
	}
}

// hearing is an attempt of a job that takes signals.
type hearing struct {
	at     time.Time
	number int64
	signal string // "none"
}

// call is a call of Signal, and its answer.
type call struct {
	answer rune // signaling: there is none
	at     time.Time
}

// signals are the lines about one job that takes signals.
type signals struct {
	calls    entriesOf[call] // by payload
	attempts []hearing
}

// values are the lines about one key whose values, from 1 on, are debounced.
type values struct {
	last, seen int64
	ref        string
}

// add adds a line of a ledger.
func (e *entries) add(by string, what rune, text string, at time.Time) {
	f := strings.Split(text, "|")
	switch what {
	case clockSet:
		e.clock = append(e.clock, setting{at, time.Duration(number(text))})
	case boutBegan, boutEnded, renewed, paused, resumed, limitsEnd, cooldownStored:
		e.limits.add(by, what, text, at)
	case promised:
		s := e.schedules.of(f[0])
		s.until, s.every = max(s.until, number(f[1])), number(f[2])
	case occurred:
		*e.schedules.of(f[0]).began.of(f[1] + f[2]) = number(f[1])
	case signaling:
		e.signals.of(f[0]).calls.of(f[1])
	case signaled, signalRefused, signalUnsure:
		*e.signals.of(f[0]).calls.of(f[1]) = call{what, at}
	case attempted:
		s := e.signals.of(f[0])
		s.attempts = append(s.attempts, hearing{at, number(f[1]), f[2]})
	case valueSeen:
		v := e.values.of(f[0])
		v.seen = max(v.seen, number(f[1]))
	case valued:
		*e.debounced.of(f[2]) = true
		if v := e.values.of(f[0]); number(f[1]) > v.last {
			v.last, v.ref = number(f[1]), f[2]
		}
	case pushed, pushSeen:
		e.pushes.of(f[0]).add(what, f, at)
	case watchBegan, watchEnded:
		e.watches = append(e.watches, at)
	case shared:
		c := readShared(f, at)
		calls := e.shared.of(c.key)
		if *calls = append(*calls, c); c.stores() {
			*e.debounced.of(string(c.ref)) = true // it may be replaced
		}
	case retained:
		e.kept.of(f[0]).promised = true
	case keptAs:
		states := e.kept.of(f[0]).as.of(by)
		*states = append(*states, f[1])
	case heldBegan:
	default:
		e.jobs.of(f[0]).add(what, f[1:], at)
	}
}

// settleKeys counts. The jobs that were canceled, or may be, need no attempt any more.
func (e *entries) settleKeys(a *account) {
	gone := func(ref string) bool {
		p := e.jobs[ref]
		return p != nil && p.n[canceled]+p.n[unsure] > 0
	}
	a.Values, a.Keys = len(e.debounced), len(e.values)
	for _, v := range e.values {
		if v.seen < v.last && !gone(v.ref) {
			a.Broken.Unseen++
		}
	}
	for ref, s := range e.signals {
		slices.SortFunc(s.attempts, func(x, y hearing) int { return x.at.Compare(y.at) })
		for payload, c := range s.calls {
			has, heard := s.heard(payload, c.at)
			switch {
			case c.answer == signaled:
				a.Signaled++
				if !heard && (has || !gone(ref)) {
					a.Broken.Unheard++
				}
			case c.answer == signalRefused:
				a.SignalRefused++
				if has {
					a.Broken.Overheard++
				}
			default:
				a.SignalUnknown++
			}
		}
	}
}

// heard reports whether an attempt has a signal, and whether all have it that began after a time,
// at least one. An attempt of a number that an earlier one had was begun before that: its
// process was stopped for a while, and has lost its lease.
func (s *signals) heard(payload string, since time.Time) (some, all bool) {
	all = true
	highest := int64(0)
	for _, h := range s.attempts {
		has := h.signal == payload
		some = some || has
		all = all && (has || h.number <= highest || h.at.Before(since))
		highest = max(highest, h.number)
	}
	return some, some && all
}
