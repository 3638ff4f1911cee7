package protocol

import (
	"fmt"
	"strings"
	"testing"
)

// A fourth model: of the tokens of a limit, and of CancelRunning. Two workers, some jobs under
// one limit that has a rate, and a user who asks for an end to what runs. Times are ticks from
// now on, so that the clock needs no end. Permits have their own model.
//
// What may go wrong: a worker dies, or its lease is over, between any two steps; the answer to a
// claim is lost, and its status cannot be read; an attempt fails.
//
// What is promised, in every state: of any length of time no more tokens are taken than the
// burst and what comes meanwhile, and no handler begins before its token. (One that is late
// begins later than its token, beside others.) What was canceled, and has ended, does not begin;
// a handler ends early only if its claim is the one that was to end; CancelRunning returns true
// only for a claim that was there. And if nothing more goes wrong all jobs end, also those whose
// handlers only do when they are canceled.
//
// The steps, and their names in the engine:
//
//	plan           claim.go: survey; claimplan.go: planClaims; driver: Take
//	commit         claimplan.go: compose; claim.go: commitClaims, standing; driver: TokenValidBy
//	tick           permits.go: counterWrite (whose message has a TTL)
//	call           engine.go: CancelRunning
//	requests       worker.go: notifyCanceled
//	finish         finish.go: end; release.go: freeGroup; internal/worker: cancel, interrupted

const (
	gap    = 2 // ticks between two tokens
	burst  = 2
	spare  = (burst - 1) * gap
	ahead  = 1 // TokenAhead
	memory = 6 // ticks for which it is known how many tokens were taken
	timed  = 3 // jobs at most
)

// tokenJob is a job, its status, and what a user does.
type tokenJob struct {
	held      uint8 // by a worker from 1, or died; 0: nobody
	came      int8  // when its token comes
	ended     bool
	stop      bool  // its handler was canceled and has returned
	call      uint8 // of CancelRunning: whose claim it has read; 0: it does not run
	same      bool  // that is as it was read
	request   uint8 // 1: of the claim that is there; 2: of one before
	requestBy uint8 // whose claim that was
}

// tokenWorker is a worker.
type tokenWorker struct {
	lease, same, fresh, told bool
	phase, job               uint8
	at                       int8 // as far as it knows: when it may begin
	came, next               int8 // of the plan: its token, and what is stored then
}

type tokenState struct {
	tokens  int8 // what the message has, in ticks from now on; 0: nothing, or no more
	taken   [memory]uint8
	jobs    [timed]tokenJob
	workers [2]tokenWorker
	left    mishaps
	broken  uint8
	many    uint8 // jobs
	endless bool  // handlers end when they are canceled
}

type mishaps struct{ crashes, leases, lost, fails uint8 }

type tokenFaults struct {
	writesBlind  bool // what is counted is written without a condition
	lapsesEarly  bool // its message lapses before the last token is there
	forgetsToken bool // after a lost answer nobody knows of the token
	cancelsBlind bool // the request is written without a condition
	obeysOld     bool // a request is of a job, and not of one claim
	triesAgain   bool // what was canceled and returns an error is tried again
	neverTells   bool // nobody looks for requests
}

var tokenPromises = []string{
	"", "it begins before its token", "what has ended begins", "what was canceled begins again",
	"a claim ends that nobody has canceled", "CancelRunning returns true for what is not claimed",
}

const (
	rests   = iota
	planned // what is counted and the status were read
	awaits  // its time
	works
	lateCut // the lease is lost
)

type tokenMoves struct {
	faults tokenFaults
	out    []stepTo[tokenState]
}

func (m *tokenMoves) do(to tokenState, what string, w int, j uint8) {
	m.out = append(m.out, stepTo[tokenState]{to: to, what: fmt.Sprintf("worker %c, job %d: %s", 'A'+w, j+1, what)})
}

func (m *tokenMoves) wrong(to tokenState, what string, w int, j uint8) {
	m.do(to, what, w, j)
	m.out[len(m.out)-1].fault = true
}

// set replaces the status of a job.
func (s *tokenState) set(j, holder uint8) {
	q := &s.jobs[j]
	q.held, q.same = holder, false
	if q.request > 0 {
		q.request = 2
	}
	for w := range s.workers {
		if s.workers[w].job == j {
			s.workers[w].same = false
		}
	}
}

func (m *tokenMoves) from(s tokenState) []stepTo[tokenState] {
	m.out = m.out[:0]
	m.do(s.tick(), "a tick passes", 0, 0)
	if m.faults.lapsesEarly && s.tokens > 0 {
		to := s
		to.tokens = 0
		m.do(to, "what is counted lapses", 0, 0)
	}
	for j := range s.many {
		m.call(s, j)
	}
	for w := range s.workers {
		m.work(s, w)
		m.requests(s, w)
		m.befall(s, w)
	}
	return m.out
}

func (s tokenState) tick() tokenState {
	s.tokens = max(s.tokens-1, 0)
	copy(s.taken[1:], s.taken[:memory-1])
	s.taken[0] = 0
	for j := range s.jobs {
		s.jobs[j].came = max(s.jobs[j].came-1, 0)
	}
	for w := range s.workers {
		r := &s.workers[w]
		r.at, r.next = max(r.at-1, 0), max(r.next-1, 0)
		if r.phase == planned {
			r.came = max(r.came-1, ahead+1-memory)
		}
	}
	return s
}

// call is a step of CancelRunning: it reads a claim, and leaves a request for it on the condition
// that it is there still.
func (m *tokenMoves) call(s tokenState, j uint8) {
	q := s.jobs[j]
	n := s
	my := &n.jobs[j]
	switch {
	case !s.endless:
	case q.call == 0 && q.held > 0 && q.held != died && q.request != 1:
		my.call, my.same = q.held, true
		m.do(n, "CancelRunning reads its status", 0, j)
	case q.call > 0 && (q.same || m.faults.cancelsBlind):
		my.call, my.request, my.requestBy = 0, 1, q.call
		if !q.same {
			n.broken = 5
		}
		m.do(n, "CancelRunning leaves a request, and returns true", 0, j)
	case q.call > 0:
		my.call = 0
		m.do(n, "CancelRunning finds it changed", 0, j)
	}
}

// requests is a worker's read of the requests, with each heartbeat.
func (m *tokenMoves) requests(s tokenState, w int) {
	r := s.workers[w]
	q := s.jobs[r.job]
	if m.faults.neverTells || (r.phase != awaits && r.phase != works) || q.request == 0 || int(q.requestBy) != w+1 || !r.lease {
		return
	}
	n := s
	switch {
	case q.request == 1 && r.same:
		n.workers[w].told = true
		m.do(n, "its handler is canceled", w, r.job)
	case m.faults.obeysOld:
		n.broken = 4
		m.do(n, "its handler is canceled by an old request", w, r.job)
	default:
		n.jobs[r.job].request, n.jobs[r.job].requestBy = 0, 0
		m.do(n, "an old request is removed", w, r.job)
	}
}

func (m *tokenMoves) work(s tokenState, w int) {
	r := s.workers[w]
	n := s
	switch r.phase {
	case rests:
		for j := range s.many {
			m.plan(s, w, j)
		}
	case planned:
		m.commit(s, w)
	case awaits:
		if r.told {
			m.finish(s, w, "it ends before it begins")
		} else if r.lease && r.at <= 0 {
			m.begin(n, w)
		}
	case works, lateCut:
		if !s.endless || r.told || r.phase == lateCut {
			m.finish(s, w, "its end is written")
		}
		if r.same && (!r.told || m.faults.triesAgain) && s.left.fails > 0 {
			n.left.fails--
			n.jobs[r.job].stop = r.told
			n.set(r.job, 0)
			n.workers[w] = tokenWorker{lease: r.lease}
			m.wrong(n, "it fails, and is to be tried again", w, r.job)
		}
	}
}

// plan reads the status and what is counted, and takes a token if there is one, or soon is.
func (m *tokenMoves) plan(s tokenState, w int, j uint8) {
	q := s.jobs[j]
	n := s
	my := &n.workers[w]
	switch {
	case q.ended || !s.workers[w].lease:
		return
	case int(q.held) == w+1: // the answer was lost
		n.set(j, uint8(w+1))
		*my = tokenWorker{lease: true, phase: awaits, job: j, same: true, at: ahead}
		if m.faults.forgetsToken {
			my.at = 0
		}
		m.do(n, "it is found to be its own, and claimed anew", w, j)
		return
	case q.held > 0 && q.held != died && s.workers[q.held-1].lease:
		return // another has it
	}
	came := s.tokens - spare
	if came > ahead {
		return // it waits for its token
	}
	*my = tokenWorker{lease: true, phase: planned, job: j, same: true, fresh: true, came: max(came, 0), at: max(came, 0), next: s.tokens + gap}
	m.do(n, "a token is there, or soon is", w, j)
}

// commit writes the claim and what is counted, if both are as they were read.
func (m *tokenMoves) commit(s tokenState, w int) {
	r := s.workers[w]
	n := s
	if !r.same || !r.fresh && !m.faults.writesBlind {
		n.workers[w] = tokenWorker{lease: r.lease}
		m.do(n, "a conflict", w, r.job)
		return
	}
	n.set(r.job, uint8(w+1))
	n.tokens = r.next
	for k := range n.workers {
		n.workers[k].fresh = false
	}
	n.taken[ahead-r.came]++
	n.jobs[r.job].came = max(r.came, 0)
	n.workers[w] = tokenWorker{lease: r.lease, phase: awaits, job: r.job, same: true, at: r.at}
	m.do(n, "claimed", w, r.job)
	if s.left.lost > 0 {
		n.left.lost--
		n.workers[w] = tokenWorker{lease: r.lease}
		m.wrong(n, "claimed, but the answer is lost, and nothing can be read", w, r.job)
	}
}

func (m *tokenMoves) begin(n tokenState, w int) {
	my := &n.workers[w]
	q := n.jobs[my.job]
	my.phase = works
	switch {
	case q.stop:
		n.broken = 3
	case q.ended:
		n.broken = 2
	case q.came > 0:
		n.broken = 1
	}
	m.do(n, "its handler begins", w, my.job)
}

func (m *tokenMoves) finish(n tokenState, w int, what string) {
	r := n.workers[w]
	if r.same {
		n.jobs[r.job].ended, n.jobs[r.job].stop = true, r.told
		n.set(r.job, 0)
		n.jobs[r.job].came = 0
	}
	n.workers[w] = tokenWorker{lease: r.lease}
	m.do(n, what, w, r.job)
}

// befall is what befalls a worker.
func (m *tokenMoves) befall(s tokenState, w int) {
	r := s.workers[w]
	n := s
	switch {
	case r.lease && r.phase != rests && s.left.leases > 0:
		n.left.leases--
		n.workers[w].lease = false
		m.wrong(n, "the lease is over", w, r.job)
	case !r.lease:
		n.workers[w] = tokenWorker{lease: true}
		switch r.phase {
		case works:
			n.workers[w] = r
			n.workers[w].lease, n.workers[w].phase = true, lateCut
		case awaits:
			if r.same {
				n.set(r.job, 0)
			}
		}
		m.do(n, "the worker notices, hands back what has not begun, and writes a heartbeat", w, r.job)
	}
	if s.left.crashes > 0 && r.phase != rests {
		n = s
		n.left.crashes--
		n.workers[w] = tokenWorker{lease: true}
		for j := range n.jobs {
			if q := &n.jobs[j]; int(q.held) == w+1 {
				q.held = died
			}
		}
		m.wrong(n, "the worker dies", w, r.job)
	}
}

func (s tokenState) check() string {
	if s.broken > 0 {
		return tokenPromises[s.broken]
	}
	for from := range s.taken {
		n := 0
		for to := from; to < memory; to++ {
			if n += int(s.taken[to]); n > burst+(to-from)/gap {
				return tooMany
			}
		}
	}
	return ""
}

const tooMany = "more tokens are taken than come"

// canon returns one of the states that differ only in who is which worker.
func (s tokenState) canon() tokenState {
	if s.workers[0].order() <= s.workers[1].order() {
		return s
	}
	s.workers[0], s.workers[1] = s.workers[1], s.workers[0]
	for j := range s.jobs {
		q := &s.jobs[j]
		for _, who := range []*uint8{&q.held, &q.requestBy, &q.call} {
			if *who == 1 || *who == 2 {
				*who = 3 - *who
			}
		}
	}
	return s
}

func (r *tokenWorker) order() int {
	n := (((int(r.phase)<<2|int(r.job))<<4|int(r.at))<<4|int(r.next))<<4 | int(r.came+memory)
	for _, is := range []bool{r.lease, r.same, r.fresh, r.told} {
		if n <<= 1; is {
			n++
		}
	}
	return n
}

func (s tokenState) ended() bool {
	for _, q := range s.jobs[:s.many] {
		if !q.ended {
			return false
		}
	}
	return true
}

func exploreTiming(many uint8, endless bool, left mishaps, f tokenFaults) (broken string, path []string, count int) {
	start := tokenState{many: many, endless: endless, left: left}
	for w := range start.workers {
		start.workers[w].lease = true
	}
	return search(start, (&tokenMoves{faults: f}).from)
}

func TestTokensAndCancelRunning(t *testing.T) {
	for _, c := range []struct {
		many    uint8
		endless bool
		left    mishaps
	}{
		{3, false, mishaps{}},
		{2, false, mishaps{lost: 1, fails: 1}},
		{2, false, mishaps{crashes: 1, fails: 1}},
		{2, false, mishaps{leases: 1, lost: 1}},
		{1, true, mishaps{crashes: 1, leases: 1, lost: 1, fails: 1}},
		{2, true, mishaps{}},
		{3, false, mishaps{lost: 1}},
		{2, true, mishaps{fails: 1}},
	} {
		if broken, path, n := exploreTiming(c.many, c.endless, c.left, tokenFaults{}); broken != "" {
			t.Fatalf("%+v: %s:\n%s", c, broken, strings.Join(path, "\n"))
		} else {
			t.Logf("%d states: %+v", n, c)
		}
	}
}

func TestTokensAndCancelRunningFindsWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		promise string
		many    uint8
		endless bool
		left    mishaps
		faults  tokenFaults
	}{
		{tooMany, 3, false, mishaps{}, tokenFaults{writesBlind: true}},
		{tooMany, 3, false, mishaps{}, tokenFaults{lapsesEarly: true}},
		{tokenPromises[1], 3, false, mishaps{lost: 1}, tokenFaults{forgetsToken: true}},
		{tokenPromises[3], 1, true, mishaps{fails: 1}, tokenFaults{triesAgain: true}},
		{tokenPromises[4], 1, true, mishaps{fails: 1}, tokenFaults{obeysOld: true}},
		{tokenPromises[5], 1, true, mishaps{fails: 1}, tokenFaults{cancelsBlind: true}},
		{neverEnds, 1, true, mishaps{}, tokenFaults{neverTells: true}},
	} {
		broken, path, n := exploreTiming(c.many, c.endless, c.left, c.faults)
		if broken != c.promise {
			t.Errorf("%+v: %q, not %q:\n%s", c.faults, broken, c.promise, strings.Join(path, "\n"))
		}
		t.Logf("%s, found in %d states with %s:\n%s", broken, n, strings.Trim(fmt.Sprintf("%+v", c.faults), "{}"), strings.Join(path, "\n"))
	}
}
