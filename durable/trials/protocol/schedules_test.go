package protocol

import (
	"fmt"
	"strings"
	"testing"
)

// A second, smaller model: of schedules. One schedule, two workers that run and end its
// occurrences, and two users who change, pause and delete it, one call each after the other.
// The steps are those of schedules.go: each question and each commit is one step, and the
// answer to a commit may be lost. What the first model is about is taken for granted here: of
// two writers of a status one wins.
//
// What is promised, in every state where nobody is on the way: a schedule that is there and
// not paused has one occurrence that waits or runs, and one that is paused or deleted has
// none that waits. In every state: never two. An occurrence that has ended does not begin.
//
// A second exploration has times, too: occurrences are at 1, 2 and so on, with a jitter of 1,
// and a user's clock may be 2 behind. There no time runs twice, and none is left out but by a
// pause.
//
// The steps, and their names in the engine:
//
//	set      schedules.go: setSchedule, readSchedule, replaceOccurrence;
//	         internal/recur: Replacement
//	end      finish.go: end; keys.go: leaveKey; schedules.go: endSchedule; internal/recur: FollowAgain

const (
	noSchedule = iota
	there
	paused
)

// occ is what the status of an occurrence says. The newest is what the key leads to.
const (
	noOcc = iota
	waits
	runs
	over
)

// How far a user's call is.
const (
	calm    = iota
	decided // of a fault: what is to wait is decided on, and nothing is read
	read    // the schedule and the key are read
	unsureSet
)

// setter is a user.
type setter struct {
	phase    uint8
	calls    uint8 // how often it may still call
	what     uint8 // what the schedule is to be
	revision uint8 // that was read
	stamp    uint8 // of the schedule's message, likewise
	key      uint8 // the occurrence that the key led to
	fate     uint8 // its status, likewise
	next     uint8 // the time of what is to wait
}

// ender is a worker that runs an occurrence.
type ender struct {
	occ      uint8 // 0: none
	ends     bool  // the handler has returned
	revision uint8 // by which what follows was made
	follows  bool  // something does
	read     bool  // the schedule's message was read, with the stamp
	stamp    uint8
}

const maxOccs = 6

// scheduleState is all that there is.
type scheduleState struct {
	what, revision, stamp uint8 // of the schedule; the stamp is the sequence of its message
	by                    [maxOccs]uint8
	occs                  [maxOccs]uint8
	newest                uint8 // the occurrence that has the key, or had it last

	at          [maxOccs]uint8 // times: all 0 in an exploration without
	clock, last uint8
	ran         uint8 // a bit for each time
	left        bool  // a pause may have left some out

	users         [2]setter
	workers       [2]ender
	lost, crashes uint8
}

// scheduleFaults puts back what would be wrong.
type scheduleFaults struct {
	endsBlind   bool // an end does not look at the schedule
	setsBlind   bool // a change is not conditional on the schedule's message
	keyUnread   bool // a change does not look at the status of what it replaces
	nothingLeft bool // an end without a successor does not write the schedule

	// Of times.
	decidesFirst bool // what is to wait is decided on before anything is read
	asksAnew     bool // it is always the next by the clock
	lastUnread   bool // what has run does not count
}

type scheduleMoves struct {
	faults scheduleFaults
	timed  bool
	out    []scheduleState
	broken string
}

func (m *scheduleMoves) from(s scheduleState) ([]scheduleState, string) {
	m.out, m.broken = m.out[:0], ""
	if m.timed && s.clock < lastTick {
		n := s
		n.clock++
		m.out = append(m.out, n)
	}
	for u := range s.users {
		m.set(s, u)
	}
	for w := range s.workers {
		m.work(s, w)
	}
	return m.out, m.broken
}

// set is one step of a user's call.
func (m *scheduleMoves) set(s scheduleState, u int) {
	me := &s.users[u]
	switch me.phase {
	case calm, decided, unsureSet:
		if me.phase == calm && me.calls == 0 {
			return
		}
		if m.faults.decidesFirst && me.phase == calm {
			n := s
			n.users[u].phase, n.users[u].next = decided, s.clock+1
			m.out = append(m.out, n)
			return
		}
		for what := uint8(noSchedule); what <= paused; what++ {
			n := s
			my := &n.users[u]
			if me.phase != unsureSet {
				my.calls--
				my.what = what
			} else if what != me.what {
				continue
			}
			my.phase, my.revision, my.stamp, my.key, my.fate = read, s.revision, s.stamp, s.newest, s.occs[s.newest]
			for behind := range min(s.clock, 2) + 1 {
				n := n
				m.replace(&n, &n.users[u], s.clock-behind)
				m.out = append(m.out, n)
			}
		}
	case read:
		n := s
		my := &n.users[u]
		my.phase = unsureSet // a conflict: once more
		conflict := s.stamp != me.stamp && !m.faults.setsBlind || s.newest != me.key
		// What waits is replaced, on the condition that it still does.
		if me.fate == waits && s.occs[me.key] != waits && !m.faults.keyUnread {
			conflict = true
		}
		if conflict {
			m.out = append(m.out, n)
			return
		}
		my.phase = calm
		n.what, n.revision, n.stamp = me.what, s.revision+1, s.stamp+1
		n.left = s.left || m.timed && me.what != there
		if me.fate == waits {
			n.occs[me.key] = over
		}
		if me.what == there && me.fate != runs && !n.store(n.revision, me.next) {
			return
		}
		m.out = append(m.out, n)
		if s.lost > 0 { // it finds its own revision, and so it is done: or another's, and tries anew
			n.lost--
			n.users[u].phase = unsureSet
			m.out = append(m.out, n)
		}
	}
}

// lastTick is how far the clock goes, and a jitter behind it occurrences begin.
const lastTick = 4

// replace decides what is to wait from now on, by a user's clock.
func (m *scheduleMoves) replace(s *scheduleState, me *setter, now uint8) {
	at := s.at[me.key]
	switch {
	case !m.timed:
	case me.fate == waits && at+1 <= now && me.what == there && !m.faults.decidesFirst:
		me.fate = runs // it is due, and stays
	case m.faults.decidesFirst:
	case me.fate == waits && !m.faults.asksAnew:
		me.next = min(at, max(now, s.last)+1)
	case m.faults.lastUnread:
		me.next = now + 1
	default:
		me.next = max(now, s.last) + 1
	}
}

// store adds an occurrence of a time; false if the model has no room for more.
func (s *scheduleState) store(revision, at uint8) bool {
	if int(s.newest)+1 == maxOccs {
		return false
	}
	s.newest++
	s.occs[s.newest], s.by[s.newest], s.at[s.newest] = waits, revision, at
	return true
}

// work is one step of a worker.
func (m *scheduleMoves) work(s scheduleState, w int) {
	me := s.workers[w]
	switch {
	case me.occ == 0:
		if s.occs[s.newest] == waits && (!m.timed || s.at[s.newest]+1 <= s.clock) {
			n := s
			n.occs[s.newest] = runs
			n.workers[w] = ender{occ: s.newest}
			m.out = append(m.out, n)
		}
		return
	case s.crashes > 0:
		n := s
		n.crashes--
		n.workers[w] = ender{}
		if n.occs[me.occ] == runs {
			n.occs[me.occ] = waits // its lease is over
		}
		m.out = append(m.out, n)
	}
	n := s
	my := &n.workers[w]
	switch {
	case !me.ends: // Follow, by the schedule that came with it
		my.ends, my.revision, my.follows = true, s.by[me.occ], true
	case !me.read: // endSchedule
		my.read, my.stamp = true, s.stamp
		if s.revision != me.revision && !m.faults.endsBlind { // ErrChanged: FollowAgain
			my.read, my.revision, my.follows = false, s.revision, s.what == there
		}
	default:
		m.end(s, w)
		return
	}
	m.out = append(m.out, n)
}

// end is the commit of an end.
func (m *scheduleMoves) end(s scheduleState, w int) {
	me := s.workers[w]
	n := s
	blind := m.faults.endsBlind || m.faults.nothingLeft && !me.follows
	if s.stamp != me.stamp && !blind {
		n.workers[w].read = false
		m.out = append(m.out, n)
		return
	}
	if s.occs[me.occ] != runs {
		m.broken = "what has ended ends again"
	}
	at := s.at[me.occ]
	if m.timed {
		switch before := uint8(1)<<at - 2; {
		case s.ran&(1<<at) != 0:
			m.broken = "a time runs twice"
		case !s.left && s.ran&before != before:
			m.broken = "a time is left out"
		}
		n.ran, n.last = s.ran|1<<at, max(s.last, at)
	}
	n.occs[me.occ] = over
	if !blind {
		n.stamp++
	}
	n.workers[w] = ender{}
	next := at
	if m.timed {
		next++
	}
	if me.follows && !n.store(me.revision, next) {
		return
	}
	m.out = append(m.out, n)
}

// check returns which promise a state breaks.
func (s *scheduleState) check() string {
	alive := 0
	for _, o := range s.occs[1:] {
		if o == waits || o == runs {
			alive++
		}
	}
	if alive > 1 {
		return "two occurrences"
	}
	for _, u := range s.users {
		if u.phase != calm {
			return ""
		}
	}
	switch {
	case s.what == there && alive == 0:
		return "a schedule stands still"
	case s.what != there && s.occs[s.newest] == waits && s.crashes == 1:
		return "what was paused waits"
	}
	return ""
}

// exploreSchedules goes through all states, and returns what is broken first.
func exploreSchedules(t *testing.T, f scheduleFaults, timed bool) (broken string) {
	start := scheduleState{what: there, revision: 1, stamp: 1, lost: 1, crashes: 1, newest: 1}
	start.occs[1], start.by[1] = waits, 1
	start.users[0].calls, start.users[1].calls = 2, 1
	switch {
	case timed:
		start.at[1], start.users[1].calls = 1, 0
	case f != (scheduleFaults{}):
		start.users[0].calls = 1 // that is enough to see what is wrong
	}
	seen := map[scheduleState]bool{start: true}
	m := &scheduleMoves{faults: f, timed: timed}
	for queue := []scheduleState{start}; len(queue) > 0; {
		next, broken := m.from(queue[0])
		queue = queue[1:]
		if broken != "" {
			return broken
		}
		for _, n := range next {
			if seen[n] {
				continue
			}
			seen[n] = true
			if broken := n.check(); broken != "" {
				return broken
			}
			queue = append(queue, n)
		}
	}
	t.Logf("%d states", len(seen))
	return ""
}

func TestSchedules(t *testing.T) {
	for timed, faults := range map[bool][]scheduleFaults{
		false: {{endsBlind: true}, {setsBlind: true}, {keyUnread: true}, {nothingLeft: true}},
		true:  {{decidesFirst: true}, {asksAnew: true}, {lastUnread: true}},
	} {
		if broken := exploreSchedules(t, scheduleFaults{}, timed); broken != "" {
			t.Fatal(broken)
		}
		for _, f := range faults {
			if broken := exploreSchedules(t, f, timed); broken == "" {
				t.Errorf("nothing is broken with %s", strings.Trim(fmt.Sprintf("%+v", f), "{}"))
			} else {
				t.Logf("%+v: %s", f, broken)
			}
		}
	}
}
