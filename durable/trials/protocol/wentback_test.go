package protocol

import (
	"fmt"
	"strings"
	"testing"
)

// A model of how a worker and a store that went back agree on claims again. It is of postgres
// (wentback.go, forget.sql) and of internal/worker (wentback.go). There is one job, and two workers that
// live all the time, so that no lease ends: what is unknown to its worker must be handed back by that. The
// store goes back once, to any state that it had. A claim's answer may be lost, and a claim may arrive when
// its worker has given it up.
//
// The promises: a claim that its worker knows and the store has is never handed back; two run
// the job at one time only after the store went back; and the job ends.
//
// The steps, and their names in the engine:
//
//	work             internal/worker: giveBack, note, granted (and postgres)
//	knows            internal/worker: holds, HasClaimed, isReturning
//	compare          internal/worker: compared, LoseClaim (and forget.sql of postgres)

// row is the job in the store.
type row struct {
	holder uint8 // a worker from 1; 0: it waits; nobodys: it was handed back
	claim  uint8 // counts claims; it goes back, too
	ended  bool
}

const nobodys = workers + 1

// How far a worker is with the job.
const (
	hasNot   = iota
	fetches  // it is handed out
	asks     // the claim is sent
	answered // the answer is on its way: backWorker.granted
	doubts   // the answer was lost
	handles  // the handler
	ends     // the end is sent
	gives    // the release is sent
)

// How far a comparison is.
const (
	compared = iota
	reads    // the store's claim is read: backWorker.seen
	judges   // it is unknown: it will be handed back
)

type backWorker struct {
	phase   uint8
	claim   uint8 // its number, once it is known
	granted bool
	stray   bool // a claim that was given up may still arrive

	compares uint8
	seen     uint8
}

// backState is all that there is.
type backState struct {
	row     row
	kept    row // to which it goes back
	keeps   bool
	back    bool  // it went back
	again   bool  // the attempt that fails is over
	robbed  bool  // a known claim was handed back
	lost    uint8 // answers that may still be lost
	gives   uint8 // claimed jobs that may still be given back
	workers [workers]backWorker
}

// backFaults puts back what would be wrong.
type backFaults struct {
	neverCompares bool // a heartbeat says that a worker lives, and no more
	answersOnly   bool // a claim is known from its answer on
	claimsBeside  bool // a claim is sent while it is looked whether the store's is known
}

type backMoves struct {
	faults backFaults
	out    []stepTo[backState]
}

func (m *backMoves) do(to backState, what string, w int) {
	m.out = append(m.out, stepTo[backState]{to: to, what: fmt.Sprintf("worker %c: %s", 'A'+w, what)})
}

func (m *backMoves) wrong(to backState, what string, w int) {
	m.do(to, what, w)
	m.out[len(m.out)-1].fault = true
}

func (m *backMoves) from(s backState) []stepTo[backState] {
	m.out = m.out[:0]
	if !s.keeps {
		n := s
		n.keeps, n.kept = true, s.row
		m.wrong(n, "the store is kept as it is", 0)
	}
	if s.keeps && !s.back {
		n := s
		n.back, n.row = true, s.kept
		m.wrong(n, "the store goes back", 0)
	}
	for w := range s.workers {
		m.work(s, w)
		m.compare(s, w)
		if s.workers[w].stray {
			n := s
			n.workers[w].stray = false
			n.take(w)
			m.do(n, "a claim arrives that it has given up", w)
		}
	}
	return m.out
}

// take is a claim in the store.
func (s *backState) take(w int) bool {
	switch {
	case s.row.ended:
		return false
	case s.row.holder == 0 || s.row.holder == nobodys:
		s.row.holder, s.row.claim = uint8(w+1), s.row.claim+1
	}
	return int(s.row.holder) == w+1
}

// owns reports whether the store has the claim that a worker knows.
func (s *backState) owns(w int) bool {
	return !s.row.ended && int(s.row.holder) == w+1 && s.row.claim == s.workers[w].claim
}

// work is one step of a worker with the job.
func (m *backMoves) work(s backState, w int) {
	n := s
	my := &n.workers[w]
	drop := func() { my.phase, my.claim, my.granted = hasNot, 0, false }
	switch s.workers[w].phase {
	case hasNot:
		if !s.row.ended && (s.row.holder == 0 || s.row.holder == nobodys) {
			my.phase = fetches
			m.do(n, "the job is handed out", w)
		}
	case fetches:
		if s.workers[w].compares == compared || m.faults.claimsBeside {
			my.phase = asks
			m.do(n, "the claim is sent", w)
		}
		drop()
		m.do(n, "the job is dropped", w)
	case asks:
		my.phase, my.granted = answered, n.take(w)
		my.claim = n.row.claim
		m.do(n, "the claim arrives", w)
		if s.lost > 0 {
			n = s
			n.lost--
			n.workers[w].phase, n.workers[w].stray = doubts, true
			m.wrong(n, "it gives up waiting for its claim, which is on its way", w)
		}
	case answered:
		if my.phase = handles; !my.granted {
			drop()
		}
		m.do(n, "the answer comes", w)
		if s.lost > 0 {
			n = s
			n.lost--
			n.workers[w].phase, n.workers[w].claim = doubts, 0
			m.wrong(n, "the answer is lost", w)
		}
	case doubts:
		my.phase = asks
		m.do(n, "the claim is sent once more", w)
		my.phase = gives
		m.do(n, "the job is dropped, and given back", w)
	case handles:
		my.phase = ends
		m.do(n, "the handler returns", w)
		if s.gives > 0 {
			n.gives--
			my.phase = gives
			m.do(n, "the job is given back", w)
		}
	case gives: // whatever claim it has
		if int(s.row.holder) == w+1 && !s.row.ended && (my.claim == 0 || my.claim == s.row.claim) {
			n.row.holder = 0
		}
		drop()
		m.do(n, "the release is stored", w)
	case ends:
		if s.owns(w) {
			n.row.ended, n.row.holder = true, 0
		}
		drop()
		m.do(n, "the end is stored, or the claim is another's", w)
		if n = s; s.owns(w) && !s.again {
			n.row.holder, n.again = 0, true
			n.workers[w].phase, n.workers[w].claim, n.workers[w].granted = hasNot, 0, false
			m.do(n, "its failure is stored", w)
		}
	}
}

// knows is WorkConfig.Holds.
func (m *backMoves) knows(me *backWorker) bool {
	if m.faults.answersOnly {
		return me.phase >= handles
	}
	return me.phase >= asks
}

// compare is one step of a comparison.
func (m *backMoves) compare(s backState, w int) {
	n := s
	me, my := s.workers[w], &n.workers[w]
	own := !s.row.ended && int(s.row.holder) == w+1
	switch {
	case m.faults.neverCompares:
	case me.compares == compared && own:
		my.compares, my.seen = reads, s.row.claim
		m.do(n, "its claim is read", w)
	case me.compares == reads:
		if my.compares = judges; m.knows(&me) {
			my.compares = compared
		}
		m.do(n, "it is asked whether it knows the claim", w)
	case me.compares == judges:
		my.compares = compared
		if own && s.row.claim == me.seen {
			n.robbed = me.phase >= answered && me.phase != doubts && s.owns(w)
			n.row.holder = nobodys
		}
		m.do(n, "its unknown claim is handed back", w)
	}
}

// check returns which promise a state breaks.
func (s backState) check() string {
	switch a, b := s.workers[0].phase, s.workers[1].phase; {
	case s.robbed:
		return "a claim is handed back that its worker knows"
	case a == handles && b == handles && !s.back:
		return "two run the job"
	}
	return ""
}

func (s backState) canon() backState { return s }

func (s backState) ended() bool { return s.row.ended }

func exploreBack(lost uint8, f backFaults) (broken string, path []string, count int) {
	return search(backState{lost: lost, gives: 1}, (&backMoves{faults: f}).from)
}

func TestWentBack(t *testing.T) {
	for lost := range uint8(2) {
		broken, path, n := exploreBack(lost, backFaults{})
		if broken != "" {
			t.Fatalf("%s:\n%s", broken, strings.Join(path, "\n"))
		}
		t.Logf("%d states with %d lost answers", n, lost)
	}
}

func TestWentBackFindsWhatIsWrong(t *testing.T) {
	const robbed = "a claim is handed back that its worker knows"
	for _, c := range []struct {
		promise string
		faults  backFaults
	}{
		{neverEnds, backFaults{neverCompares: true}},
		{robbed, backFaults{answersOnly: true}},
		{robbed, backFaults{claimsBeside: true}},
	} {
		broken, path, n := exploreBack(1, c.faults)
		if broken != c.promise {
			t.Errorf("%+v: %q, not %q:\n%s", c.faults, broken, c.promise, strings.Join(path, "\n"))
		}
		t.Logf("%s, found in %d states with %s:\n%s", broken, n, strings.Trim(fmt.Sprintf("%+v", c.faults), "{}"), strings.Join(path, "\n"))
	}
}
