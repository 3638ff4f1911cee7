package protocol

import (
	"fmt"
	"strings"
	"testing"
)

// A third model: of the permits of a limit. Two workers, two jobs under one limit, and as many
// permits as that allows. The steps are those of permits.go: each question and each commit is
// one step. What the first model is about is taken for granted here: of two writers of a
// status one wins, and who finds the bucket closed takes its claim back.
//
// What may go wrong: a worker dies, or its lease is over, between any two steps; the answer to
// a claim is lost; the limit is changed, removed and set again while jobs run; a bucket closes
// while somebody claims what has ended in it, and the statuses are removed; nobody runs any
// more what a dead worker has claimed.
//
// What is promised, in every state: no two jobs run with one permit, each under a lease, and no
// claim names a permit that is another's. Nothing that has ended begins. And if nothing more
// goes wrong all jobs end, so no permit is lost.
//
// The steps, and their names in the engine:
//
//	look, claim      claim.go: claimAll, survey, commitClaims, standing; claimplan.go: planClaims
//	unsure           claim.go: restand, standing (after an answer that was lost)
//	claims, undoes   claim.go: confirm; release.go: takeBack
//	finish           finish.go: end; release.go: freeGroup; permits.go: leave
//	sweep            claimplan.go: sweepPermits, freeDead

const permits = 2 // at most

// permitJob is a job, and its status.
type permitJob struct {
	fate   fate
	holder uint8 // of claimed: a worker from 1, or died
	permit uint8 // of claimed: the permit that it names, from 1; 0 for none
	ended  bool  // it has run to its end
	closed bool  // its bucket has the mark
	lonely bool  // nobody is handed it any more
}

// How far a worker is with a job.
const (
	sitsOut = iota
	offered // it is handed a job
	looked  // it has read the permits and the status
	took    // a fault: it has a permit, and no claim yet
	unsure  // the answer to the claim was lost
	claims  // the claim is there, the mark not looked at
	undoes  // the bucket is closed
	purges  // the claim is taken back: its status is to be removed
	returns // the lease was over: the claim is to be handed back
	holds   // waits for its time
	acts    // the handler
	isCut   // the handler was told that the lease is lost
	left    // a fault: its permit is left, its end not written
)

// permitWorker is a worker.
type permitWorker struct {
	lease  bool
	phase  uint8
	job    uint8
	permit uint8 // that it wants, or has; from 1
	keeps  bool  // it takes over, with the permit
	read   fate  // the status that it has read
	same   bool  // the status is as it was read, or as it has written it
	free   bool  // the permit is as it was read, or as it has written it
	sweep  sweep
}

// sweep is a worker's check of a permit that is taken.
type sweep struct {
	permit uint8 // 0: none
	asked  bool  // the status was read
	dead   bool  // it names the permit, and its holder is dead
	same   bool  // the status is as it was read
	free   bool  // the permit is
}

// permitState is all that there is.
type permitState struct {
	jobs    [jobs]permitJob
	permits [permits]uint8 // the job that has it, from 1; 0: free
	limit   uint8          // 0: none
	workers [workers]permitWorker
	left    troubles
}

// troubles is how often each thing may still go wrong.
type troubles struct {
	crashes, leases, lost, changes, forgets, lonely uint8

	both bool // both workers look for permits that can be freed, at one time
}

// permitFaults puts back what would be wrong.
type permitFaults struct {
	takesFirst    bool // a permit is taken in a commit of its own, before the claim
	leavesFirst   bool // and left in one of its own, before the end
	leavesBlind   bool // who finds a permit that no claim names leaves it though it has changed
	sweepsPermits bool // the permit of a dead worker is left, and its claim stays
	sweepsLiving  bool // nobody looks whether the holder of a permit lives
	neverSweeps   bool // permits are left by ends and takeovers alone
	readsBefore   bool // the status is read before the permit
	retriesBlind  bool // after a lost answer the claim is written anew, whatever is there
	handsKept     bool // what is handed back keeps its permit
}

type permitMoves struct {
	faults permitFaults
	out    []stepTo[permitState]
}

func (m *permitMoves) do(to permitState, what string, w, j int) {
	m.out = append(m.out, stepTo[permitState]{to: to, what: fmt.Sprintf("worker %c, job %d: %s", 'A'+w, j+1, what)})
}

func (m *permitMoves) wrong(to permitState, what string, w, j int) {
	m.do(to, what, w, j)
	m.out[len(m.out)-1].fault = true
}

// setStatus replaces a status: who has read the one before does not know this one.
func (s *permitState) setStatus(j int, f fate, holder, permit uint8) {
	q := &s.jobs[j]
	q.fate, q.holder, q.permit = f, holder, permit
	for w := range s.workers {
		if wk := &s.workers[w]; int(wk.job) == j {
			wk.same = false
		}
		if sw := &s.workers[w].sweep; sw.permit > 0 && sw.asked {
			sw.same = false
		}
	}
}

func (s *permitState) setPermit(permit, job uint8) {
	if permit == 0 {
		return
	}
	s.permits[permit-1] = job
	for w := range s.workers {
		if wk := &s.workers[w]; wk.permit == permit {
			wk.free = false
		}
		if sw := &s.workers[w].sweep; sw.permit == permit {
			sw.free = false
		}
	}
}

func (m *permitMoves) from(s permitState) []stepTo[permitState] {
	m.out = m.out[:0]
	if s.left.changes > 0 {
		for n := uint8(0); n <= permits; n++ {
			if n != s.limit {
				to := s
				to.left.changes--
				to.limit = n
				m.wrong(to, fmt.Sprintf("the limit is %d", n), 0, 0)
			}
		}
	}
	for j, q := range s.jobs {
		if q.ended && !q.closed {
			to := s
			to.jobs[j].closed = true
			to.setStatus(j, none, 0, 0)
			m.do(to, "its bucket closes, and its statuses are removed", 0, j)
		}
		if q.closed && q.fate != none && s.left.forgets > 0 {
			to := s
			to.left.forgets--
			to.setStatus(j, none, 0, 0)
			m.wrong(to, "its bucket is closed once more", 0, j)
		}
	}
	for w := range s.workers {
		m.work(s, w)
		m.befall(s, w)
		m.sweep(s, w)
	}
	return m.out
}

// over reports whether the lease of a claim's holder is over.
func (s *permitState) over(holder uint8, w int) bool {
	return holder == died || int(holder) == w+1 || !s.workers[holder-1].lease
}

// work is one step of a worker with its job.
func (m *permitMoves) work(s permitState, w int) {
	me := s.workers[w]
	j := int(me.job)
	q := s.jobs[j]
	n := s
	my := &n.workers[w]
	switch me.phase {
	case sitsOut:
		for k, other := range s.jobs {
			if me.lease && !other.lonely && (!other.ended || other.closed && s.left.forgets > 0) {
				to := s
				to.workers[w] = permitWorker{lease: true, phase: offered, job: uint8(k), sweep: me.sweep}
				m.do(to, "it is handed out", w, k)
			}
		}
	case offered:
		m.look(s, w)
	case looked, took:
		m.claim(s, w)
	case unsure:
		my.phase, my.same, my.free = offered, false, false
		if q.fate == claimed && int(q.holder) == w+1 && q.permit == me.permit {
			my.phase, my.same, my.free = claims, me.same, me.free
			if !me.same { // it is its own by the token only if nobody has written since
				my.phase = offered
			}
		}
		if m.faults.retriesBlind {
			m.retry(s, w)
			return
		}
		m.do(n, "the status is read after a lost answer", w, j)
	case claims:
		if my.phase = holds; q.closed {
			my.phase = undoes
		}
		m.do(n, "the mark is looked for", w, j)
	case undoes:
		if me.same {
			n.setPermit(me.permit, 0)
			n.setStatus(j, freed, 0, 0)
			my.phase, my.same = purges, true
		} else { // it was removed: sweep finds the permit
			n.workers[w] = permitWorker{lease: me.lease, sweep: me.sweep}
		}
		m.do(n, "the claim is taken back", w, j)
	case purges:
		if me.same {
			n.setStatus(j, none, 0, 0)
		}
		n.workers[w] = permitWorker{lease: me.lease, sweep: me.sweep}
		m.do(n, "the status is removed", w, j)
	case holds, returns:
		if me.phase == holds {
			m.begin(s, w)
		}
		if me.same {
			if !m.faults.handsKept {
				n.setPermit(me.permit, 0)
			}
			n.setStatus(j, freed, 0, 0)
		}
		n.workers[w] = permitWorker{lease: me.lease, sweep: me.sweep}
		m.do(n, "it is handed back", w, j)
	case acts, isCut, left:
		m.finish(s, w)
	}
}

// look reads the permits, and the status. A claim of a worker that is no more is taken over
// with its permit.
func (m *permitMoves) look(s permitState, w int) {
	me := s.workers[w]
	j := int(me.job)
	q := s.jobs[j]
	n := s
	my := &n.workers[w]
	my.phase, my.read, my.same, my.keeps, my.permit, my.free = looked, q.fate, true, false, 0, false
	switch {
	case q.fate.final():
		n.workers[w] = permitWorker{lease: me.lease, sweep: me.sweep}
		m.do(n, "it has ended", w, j)
		return
	case q.fate == claimed && !s.over(q.holder, w):
		n.workers[w] = permitWorker{lease: me.lease, sweep: me.sweep}
		m.do(n, "another has it", w, j)
		return
	case q.fate == claimed && q.permit > 0:
		my.permit, my.keeps = q.permit, true
		m.do(n, "its worker is no more: taken over with its permit", w, j)
		return
	case s.limit == 0:
		m.do(n, "there is no limit", w, j)
		return
	}
	for p := uint8(1); p <= s.limit; p++ {
		if s.permits[p-1] == 0 {
			n.workers[w].permit, n.workers[w].free = p, true
			m.do(n, "a permit is free", w, j)
		}
	}
	n = s
	n.workers[w] = permitWorker{lease: me.lease, sweep: me.sweep}
	m.do(n, "it waits for a permit", w, j)
}

// claim writes the status and the permit, in one commit.
func (m *permitMoves) claim(s permitState, w int) {
	me := s.workers[w]
	j := int(me.job)
	n := s
	my := &n.workers[w]
	if !(me.same || me.read == none && s.jobs[j].fate == none) || me.permit > 0 && !me.keeps && !me.free {
		my.phase, my.permit = offered, 0
		m.do(n, "a conflict", w, j)
		return
	}
	takes := me.permit > 0 && !me.keeps && me.phase == looked
	if takes {
		n.setPermit(me.permit, uint8(j+1))
		my.free = true
		if m.faults.takesFirst {
			my.phase = took
			m.do(n, "the permit is taken", w, j)
			return
		}
	}
	n.setStatus(j, claimed, uint8(w+1), me.permit)
	my.phase, my.same = claims, true
	m.do(n, "claimed", w, j)
	if s.left.lost > 0 {
		n.left.lost--
		my.phase = unsure
		m.wrong(n, "claimed, but the answer is lost", w, j)
	}
}

// retry is a fault: after a lost answer another permit is taken, and the claim written anew.
func (m *permitMoves) retry(s permitState, w int) {
	j := int(s.workers[w].job)
	for p := uint8(1); p <= s.limit; p++ {
		if s.permits[p-1] == 0 {
			n := s
			n.setPermit(p, uint8(j+1))
			n.setStatus(j, claimed, uint8(w+1), p)
			my := &n.workers[w]
			my.phase, my.permit, my.same, my.free = claims, p, true, true
			m.do(n, "claimed once more", w, j)
		}
	}
}

func (m *permitMoves) begin(s permitState, w int) {
	if s.workers[w].lease {
		s.workers[w].phase = acts
		m.do(s, "its handler begins", w, int(s.workers[w].job))
	}
}

// finish writes the end, and leaves the permit, in one commit.
func (m *permitMoves) finish(s permitState, w int) {
	me := s.workers[w]
	j := int(me.job)
	n := s
	if me.phase == acts && m.faults.leavesFirst && me.same {
		n.setPermit(me.permit, 0)
		n.workers[w].phase = left
		m.do(n, "its permit is left", w, j)
		return
	}
	n.workers[w] = permitWorker{lease: me.lease, sweep: me.sweep}
	if me.same {
		if me.phase != left {
			n.setPermit(me.permit, 0)
		}
		n.setStatus(j, done, 0, 0)
		n.jobs[j].ended = true
	}
	m.do(n, "its end is written", w, j)
}

// befall is what befalls a worker.
func (m *permitMoves) befall(s permitState, w int) {
	me := s.workers[w]
	n := s
	switch {
	case me.lease && me.phase != sitsOut && s.left.leases > 0:
		n.left.leases--
		n.workers[w].lease = false
		m.wrong(n, "the lease is over", w, int(me.job))
	case !me.lease:
		n.workers[w].lease = true
		switch me.phase {
		case acts:
			n.workers[w].phase = isCut
		case unsure, claims, holds:
			n.workers[w].phase = returns
		case offered, looked, took:
			n.workers[w] = permitWorker{lease: true, sweep: me.sweep}
		}
		m.do(n, "the worker notices, and writes a heartbeat", w, int(me.job))
	}
	if s.left.crashes > 0 && (me.phase != sitsOut || me.sweep.permit > 0) {
		n = s
		n.left.crashes--
		n.workers[w] = permitWorker{lease: true}
		for j := range n.jobs {
			if q := &n.jobs[j]; int(q.holder) == w+1 {
				q.holder = died
				if s.left.lonely > 0 {
					n.left.lonely--
					q.lonely = true
				}
			}
		}
		m.wrong(n, "the worker dies", w, int(me.job))
	}
}

// sweep looks at a permit that is taken, and at the status that should name it. If that does,
// and its worker is no more, the claim and the permit are given back in one commit. If it does
// not, the permit is left, if it is as it was.
func (m *permitMoves) sweep(s permitState, w int) {
	sw := s.workers[w].sweep
	if !s.workers[w].lease || m.faults.neverSweeps || s.workers[1-w].sweep.permit > 0 && !s.left.both {
		return
	}
	if sw.permit == 0 {
		for p := uint8(1); p <= permits; p++ {
			if s.permits[p-1] > 0 || m.faults.readsBefore {
				n := s
				n.workers[w].sweep = sweep{permit: p, free: true}
				if m.faults.readsBefore {
					for j := range s.jobs {
						own := n
						own.ask(w, j, p, m.faults)
						m.do(own, "the status is read before the permit", w, j)
					}
					continue
				}
				m.do(n, "a permit is seen to be taken", w, int(s.permits[p-1])-1)
			}
		}
		return
	}
	j := int(s.permits[sw.permit-1]) - 1
	n := s
	my := &n.workers[w].sweep
	switch {
	case j < 0 || !sw.free && !m.faults.readsBefore && !m.faults.leavesBlind:
		*my = sweep{}
		m.do(n, "the permit has changed", w, 0)
	case !sw.asked:
		n.ask(w, j, sw.permit, m.faults)
		m.do(n, "the status of what has the permit is read", w, j)
	default:
		*my = sweep{}
		switch {
		case sw.dead && sw.same:
			if !m.faults.sweepsPermits {
				n.setStatus(j, freed, 0, 0)
			}
			n.setPermit(sw.permit, 0)
		case !sw.dead && (sw.free || m.faults.leavesBlind || m.faults.readsBefore):
			n.setPermit(sw.permit, 0)
		}
		m.do(n, "the permit is left for it", w, j)
	}
}

// ask reads the status of what has a permit; the sweep ends if it is to stay.
func (s *permitState) ask(w, j int, permit uint8, f permitFaults) {
	q := s.jobs[j]
	sw := &s.workers[w].sweep
	sw.asked, sw.same = true, true
	if q.fate == claimed && q.permit == permit {
		over := q.holder == died || !s.workers[max(q.holder, 1)-1].lease
		if sw.dead = true; !over && !f.sweepsLiving || f.readsBefore {
			*sw = sweep{}
		}
	}
}

// check returns which promise a state breaks.
func (s permitState) check() string {
	var in [permits + 1]int
	for w := range s.workers {
		me := &s.workers[w]
		if me.phase != acts || !me.lease {
			continue
		}
		if s.jobs[me.job].ended {
			return "what has ended begins"
		}
		if in[me.permit]++; me.permit > 0 && in[me.permit] > 1 {
			return "two run with one permit"
		}
	}
	for j, q := range s.jobs {
		if q.fate == claimed && q.permit > 0 && int(s.permits[q.permit-1]) != j+1 {
			return "a claim names a permit that is another's"
		}
	}
	return ""
}

// canon returns one of the two states that differ only in who is which worker.
func (s permitState) canon() permitState {
	if s.workers[0].order() <= s.workers[1].order() {
		return s
	}
	s.workers[0], s.workers[1] = s.workers[1], s.workers[0]
	for j := range s.jobs {
		if q := &s.jobs[j]; q.holder == 1 || q.holder == 2 {
			q.holder = 3 - q.holder
		}
	}
	return s
}

func (w *permitWorker) order() int {
	n := int(w.phase)<<8 | int(w.job)<<7 | int(w.permit)<<5 | int(w.sweep.permit)<<3
	for i, is := range []bool{w.lease, w.same, w.free} {
		if is {
			n |= 1 << i
		}
	}
	return n
}

// ended reports whether all jobs have ended that anybody is handed.
func (s permitState) ended() bool {
	for _, q := range s.jobs {
		if !q.ended && !q.lonely {
			return false
		}
	}
	return true
}

// explorePermits goes through all states, and returns which promise is broken first, and how.
func explorePermits(limit uint8, left troubles, f permitFaults) (broken string, path []string, count int) {
	start := permitState{limit: limit, left: left}
	for w := range start.workers {
		start.workers[w].lease = true
	}
	return search(start, (&permitMoves{faults: f}).from)
}

func TestPermits(t *testing.T) {
	for _, c := range []struct {
		limit uint8
		left  troubles
	}{
		{1, troubles{crashes: 1, leases: 1}},
		{1, troubles{lost: 1, leases: 1}},
		{1, troubles{forgets: 2, lost: 1}},
		{1, troubles{forgets: 1, leases: 1}},
		{1, troubles{crashes: 1, lonely: 1, both: true}},
		{1, troubles{forgets: 1, both: true}},
		{2, troubles{crashes: 1}},
		{2, troubles{changes: 2}},
		{1, troubles{changes: 1, leases: 1}},
	} {
		if broken, path, n := explorePermits(c.limit, c.left, permitFaults{}); broken != "" {
			t.Fatalf("%+v: %s:\n%s", c, broken, strings.Join(path, "\n"))
		} else {
			t.Logf("%d states: %+v", n, c)
		}
	}
}

func TestPermitsFindsWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		promise string
		limit   uint8
		left    troubles
		faults  permitFaults
	}{
		{"a claim names a permit that is another's", 1, troubles{}, permitFaults{takesFirst: true}},
		{"a claim names a permit that is another's", 1, troubles{}, permitFaults{leavesFirst: true}},
		{"a claim names a permit that is another's", 1, troubles{forgets: 1, both: true}, permitFaults{leavesBlind: true}},
		{"a claim names a permit that is another's", 1, troubles{}, permitFaults{readsBefore: true}},
		{"a claim names a permit that is another's", 1, troubles{crashes: 1}, permitFaults{sweepsPermits: true}},
		{"two run with one permit", 1, troubles{}, permitFaults{sweepsLiving: true}},
		{neverEnds, 1, troubles{crashes: 1, lonely: 1}, permitFaults{neverSweeps: true}},
		{neverEnds, 1, troubles{forgets: 1}, permitFaults{neverSweeps: true}},
		{neverEnds, 2, troubles{lost: 1, changes: 1}, permitFaults{retriesBlind: true, neverSweeps: true}},
		{neverEnds, 1, troubles{}, permitFaults{handsKept: true, neverSweeps: true}},
	} {
		broken, path, n := explorePermits(c.limit, c.left, c.faults)
		if broken != c.promise {
			t.Errorf("%+v: %q, not %q:\n%s", c.faults, broken, c.promise, strings.Join(path, "\n"))
		}
		t.Logf("%s, found in %d states with %s:\n%s", broken, n, strings.Trim(fmt.Sprintf("%+v", c.faults), "{}"), strings.Join(path, "\n"))
	}
}
