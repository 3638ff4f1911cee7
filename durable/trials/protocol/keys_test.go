package protocol

import (
	"fmt"
	"strings"
	"testing"
)

// A fifth model: of one key. Two users add a job that replaces the job which waits under the key,
// one signals and one cancels, and two workers run what is due. Each question and each commit is
// one step. The versions of a job, leases and the answers to claims are in the first model; here a
// job has one status, and of two writers of it one wins.
//
// What may go wrong: a worker dies between any two steps, an attempt fails, the answer to an Add or a
// Signal is lost.
//
// What is promised: a job that is due is not replaced, so that it begins however often others add to its
// key; a job that was replaced or canceled does not begin; never do two wait under the
// key; the value that was stored last is seen by a run; with FreeWhenBegun no Add is refused; an
// attempt has the signal of a Signal that returned true, and none of one that returned false; a job is not
// claimed after a newer one of the key, and ends as superseded only if there is a newer one. And if
// nothing more goes wrong all jobs end.
//
// The steps, and their names in the engine:
//
//	call, store      keys.go: keyHolder, cancelGroup; keyed.go: plan, replace, isStored
//	waits            find.go: forwardedBy, current (of a job that replace stores elsewhere)
//	fill             keyed.go: fill (that of a job is its next version)
//	signal, cancel   change.go: signal, moveIf, cancelAs
//	work             claim.go: claim, readKeys, commitClaims, endSuperseded; keys.go: leaveAtBegin
//	ends             finish.go: end; keys.go: leaveKey, retakeKey

const (
	keyJobs = 4
	wait    = 1 // what a job does
	claim2  = 2
	gone    = 3
)

// keyJob is a job that had the key.
type keyJob struct {
	status, by uint8 // by: of claim2, the worker from 1, or died
	stamp      uint8 // of the status
	value      uint8
	signal     uint8 // that is stored
	told       uint8 // the signal that was answered true
	due        bool
	elsewhere  bool // it is stored in the bucket of its signal, and a forward leads there until it ends
	ended      bool // it was replaced, or Cancel returned true
}

// keyCall is a call of Add, Signal or Cancel.
type keyCall struct {
	left     uint8
	phase    uint8
	key, job uint8 // the stamp of the key, and its job, as read
	status   uint8
	stamp    uint8
	due      bool
	mine     uint8 // the job that an earlier try has stored, whose answer was lost
	was      uint8 // its value
}

// keyWorker is a worker, and what it has of a job.
type keyWorker struct {
	phase, job, stamp, key uint8
	signal                 uint8
	frees, superseded      bool // as the key was read
}

// What calls and workers do.
const (
	keyCalm = iota
	keyRead // of a call: the key is read
	jobRead // the status, too
	keyAgain

	toClaim = iota - keyAgain // of a worker: the status is read
	toFree                    // of a fault: the key is still to be left
	toBegin
	begun
	toRetry // the attempt has failed, and the key is read
)

// keyState is all that there is.
type keyState struct {
	holder, stamp  uint8 // the job that the key leads to, from 1; the stamp of its message
	gaveUp         bool  // holder has left the key
	after          uint8 // the job that had left it before, if holder has not begun; or 0
	claimed        uint8 // the largest value that was claimed
	n              uint8 // jobs
	jobs           [keyJobs + 1]keyJob
	values, seen   uint8 // the value that was stored last, and the largest that was seen
	adders         [2]keyCall
	signals, stops keyCall
	workers        [2]keyWorker
	left           mishaps
	free           bool
	refused        uint8 // a bit for each signal that was answered false
	broken         uint8
}

var keyPromises = []string{
	"", "what was replaced or canceled begins", "an attempt has not the signal that was answered true",
	"an attempt has a signal that was answered false", "an Add is refused though its key is free",
	"an older value is claimed after a newer one", "a job is superseded by an older one",
	"a job that is due is replaced", "a job that has ended is taken to wait",
}

const (
	twoWait   = "two wait under one key"
	lastValue = "the last value is seen by no run"
)

// keyFaults puts back what would be wrong.
type keyFaults struct {
	replacesDue   bool // a job that is due is replaced
	fillsBlind    bool // a value goes into a job whatever its status
	losesSignal   bool // and without the job's signal
	replacesBlind bool // a replacement does not look at the status
	repeatsBlind  bool // a repeated Add does not look whether it is stored
	readsOnce     bool // an Add that meets a claim does not read the key again
	signalsBlind  bool // a signal is not conditional on the status
	lostIsFalse   bool // a Signal whose answer was lost returns false
	cancelsBlind  bool // a cancel is not conditional on the status
	takesSignal   bool // the claim takes the signal out of the job
	freesBlind    bool // the key is left whosever it is
	freesLate     bool // and not in the commit of the claim
	retriesBlind  bool // a retry takes the key, whoever has it
	byHolder      bool // a retry is superseded by whoever has the key, and by nobody else
	takesBlind    bool // a takeover does not look for a newer job
	retryWins     bool // a retry ends the newer job
	firstBlank    bool // the bucket of a job that is stored in that of its signal gets no status
}

type keyMoves struct {
	f   keyFaults
	out []stepTo[keyState]
}

func (m *keyMoves) do(to keyState, format string, args ...any) {
	m.out = append(m.out, stepTo[keyState]{to: to, what: fmt.Sprintf(format, args...)})
}

func (m *keyMoves) wrong(to keyState, format string, args ...any) {
	m.do(to, format, args...)
	m.out[len(m.out)-1].fault = true
}

func (m *keyMoves) from(s keyState) []stepTo[keyState] {
	m.out = m.out[:0]
	for j := uint8(1); j <= s.n; j++ {
		if q := s.jobs[j]; q.status == wait && !q.due {
			n := s
			n.jobs[j].due = true
			m.do(n, "the deadline of job %d comes", j)
		}
	}
	for u := range s.adders {
		name := fmt.Sprint("Add ", u+1)
		m.call(s, func(s *keyState) *keyCall { return &s.adders[u] }, name, m.store)
	}
	m.call(s, func(s *keyState) *keyCall { return &s.signals }, "Signal", m.signal)
	m.call(s, func(s *keyState) *keyCall { return &s.stops }, "Cancel", m.cancel)
	for w := range s.workers {
		m.work(s, w)
	}
	return m.out
}

// call reads the key, then the status, and the key again if that is claimed. Then it commits.
func (m *keyMoves) call(s keyState, of func(*keyState) *keyCall, name string, commit func(keyState, func(*keyState) *keyCall, string)) {
	c := *of(&s)
	n := s
	my := of(&n)
	switch c.phase {
	case keyCalm:
		if c.left > 0 {
			my.left--
			my.phase = keyAgain
			m.do(n, "%s begins", name)
		}
	case keyAgain:
		my.phase, my.key, my.job = keyRead, s.stamp, s.has()
		m.do(n, "%s reads the key: job %d", name, my.job)
	case keyRead:
		my.phase, my.status, my.stamp, my.due = jobRead, s.jobs[c.job].status, s.jobs[c.job].stamp, s.jobs[c.job].due
		m.do(n, "%s reads the status of job %d: %d", name, c.job, my.status)
	case jobRead:
		if c.status == claim2 && s.stamp != c.key && !m.f.readsOnce {
			my.phase = keyAgain
			m.do(n, "%s sees that the key has changed", name)
			return
		}
		commit(s, of, name)
	}
}

func (c *keyCall) end() { *c = keyCall{left: c.left} }

// set writes a status.
func (s *keyState) set(j, status, by uint8) {
	q := &s.jobs[j]
	q.status, q.by = status, by
	q.stamp++
}

// setKey writes the key's message: that a job has it, which came after another or 0.
func (s *keyState) setKey(j, after uint8) {
	s.holder, s.after, s.gaveUp, s.stamp = j, after, false, s.stamp+1
}

// leaveKey writes that a job has begun and left the key.
func (s *keyState) leaveKey(j uint8) {
	s.setKey(j, 0)
	s.gaveUp = true
}

// has returns the job that has the key, or 0.
func (s *keyState) has() uint8 {
	if s.gaveUp {
		return 0
	}
	return s.holder
}

// waits reports whether a job seems to wait to a reader that has its Ref. The end of a job takes its
// forward away, so one that was stored elsewhere is searched for where it would have been without
// its signal; the commit that stores it writes there that it was moved.
func (m *keyMoves) waits(s *keyState, j uint8) bool {
	q := &s.jobs[j]
	return q.status == wait || q.status == gone && q.elsewhere && m.f.firstBlank
}

// before returns the job after which the next one comes.
func (s *keyState) before() uint8 {
	if s.gaveUp {
		return s.holder
	}
	return s.after
}

// superseded reports whether a newer job has superseded one that has left the key.
func (m *keyMoves) superseded(s *keyState, j uint8) bool {
	switch {
	case m.f.retriesBlind:
		return false
	case m.f.byHolder:
		return s.has() != 0 && s.has() != j && s.jobs[s.holder].status != gone
	}
	return s.holder != j && !(s.after == j && s.jobs[s.holder].status == gone)
}

// store is the commit of an Add: it ends the job that waits, and stores another with the key.
func (m *keyMoves) store(s keyState, of func(*keyState) *keyCall, name string) {
	c := *of(&s)
	n := s
	my := of(&n)
	switch {
	case c.mine > 0 && c.mine != c.job && s.jobs[c.mine].status == gone && m.waits(&s, c.mine):
		n.broken = 8
		m.do(n, "%s does not find what it has stored", name)
		return
	case c.mine > 0 && !m.f.repeatsBlind:
		my.end()
		m.do(n, "%s finds what it has stored", name)
		return
	case c.status == claim2:
		my.end()
		if s.free {
			n.broken = 4
		}
		m.do(n, "%s returns ErrExists", name)
		return
	case c.status == wait && c.due && !m.f.replacesDue:
		m.fill(s, of, name)
		return
	case s.stamp != c.key, c.status == wait && s.jobs[c.job].stamp != c.stamp && !m.f.replacesBlind:
		my.phase = keyAgain
		m.do(n, "%s meets a conflict", name)
		return
	case s.n == keyJobs:
		return
	}
	if c.status == wait {
		if c.due {
			n.broken = 7
		}
		n.set(c.job, gone, 0)
		n.jobs[c.job].ended = true
	}
	n.n++
	if c.mine == 0 {
		n.values++
		my.was = n.values
	}
	n.jobs[n.n] = keyJob{status: wait, value: my.was}
	if old := s.jobs[c.job]; c.status == wait && old.signal != 0 {
		heir := &n.jobs[n.n]
		heir.signal, heir.told, heir.due, heir.elsewhere = old.signal, old.told, true, true
	}
	n.setKey(n.n, s.before())
	lost := n
	my.end()
	m.do(n, "%s replaces job %d by job %d", name, c.job, n.n)
	if s.left.lost > 0 {
		lost.left.lost--
		its := of(&lost)
		its.phase, its.mine = keyAgain, lost.n
		m.wrong(lost, "%s replaces job %d by job %d, but the answer is lost", name, c.job, n.n)
	}
}

// fill is the commit of an Add whose value goes into the job that waits, since that is due. It needs no
// condition on the key, which names the job as long as that waits.
func (m *keyMoves) fill(s keyState, of func(*keyState) *keyCall, name string) {
	c := *of(&s)
	n := s
	my := of(&n)
	q := &n.jobs[c.job]
	if q.stamp != c.stamp && !m.f.fillsBlind {
		my.phase = keyAgain
		m.do(n, "%s meets a conflict", name)
		return
	}
	if c.mine == 0 {
		n.values++
		my.was = n.values
	}
	n.set(c.job, wait, 0)
	if q.value = my.was; m.f.losesSignal {
		q.signal = 0
	}
	lost := n
	my.end()
	m.do(n, "the value of %s goes into job %d", name, c.job)
	if s.left.lost > 0 {
		lost.left.lost--
		its := of(&lost)
		its.phase, its.mine = keyAgain, c.job
		m.wrong(lost, "the value of %s goes into job %d, but the answer is lost", name, c.job)
	}
}

// signal is the commit of Signal.
func (m *keyMoves) signal(s keyState, of func(*keyState) *keyCall, name string) {
	c := *of(&s)
	n := s
	my := of(&n)
	id := c.left + 1
	q := &n.jobs[c.job]
	switch {
	case c.job == 0 || c.status != wait || s.jobs[c.job].signal != 0 && s.jobs[c.job].stamp == c.stamp:
		my.end()
		n.refused |= 1 << id
		m.do(n, "%s returns false", name)
		return
	case q.stamp != c.stamp && !m.f.signalsBlind:
		my.phase = keyAgain
		m.do(n, "%s meets a conflict", name)
		return
	}
	n.set(c.job, wait, 0)
	q.signal, q.due = id, true
	lost := n
	q.told = id
	my.end()
	m.do(n, "%s of job %d returns true", name, c.job)
	if s.left.lost > 0 {
		lost.left.lost--
		of(&lost).end()
		if m.f.lostIsFalse {
			lost.refused |= 1 << id
		}
		m.wrong(lost, "%s of job %d is stored, but the answer is lost", name, c.job)
	}
}

// cancel is the commit of Cancel.
func (m *keyMoves) cancel(s keyState, of func(*keyState) *keyCall, name string) {
	c := *of(&s)
	n := s
	my := of(&n)
	switch {
	case c.status == gone && m.waits(&s, c.job):
		n.broken = 8
		m.do(n, "%s cancels job %d, which has ended", name, c.job)
	case c.job == 0 || c.status != wait:
		my.end()
		m.do(n, "%s returns false", name)
	case n.jobs[c.job].stamp != c.stamp && !m.f.cancelsBlind:
		my.phase = keyAgain
		m.do(n, "%s meets a conflict", name)
	default:
		n.set(c.job, gone, 0)
		n.jobs[c.job].ended = true
		if n.jobs[c.job].value == n.values {
			n.seen = n.values // it need not be seen any more
		}
		my.end()
		m.do(n, "%s of job %d returns true", name, c.job)
	}
}

// work is one step of a worker.
func (m *keyMoves) work(s keyState, w int) {
	h := s.workers[w]
	n := s
	my := &n.workers[w]
	q := &n.jobs[h.job]
	name := fmt.Sprint("worker ", w+1)
	if h.phase != keyCalm && s.left.crashes > 0 {
		dead := s
		dead.left.crashes--
		dead.workers[w] = keyWorker{}
		for j := range dead.jobs {
			if dead.jobs[j].by == uint8(w+1) {
				dead.jobs[j].by = died
			}
		}
		m.wrong(dead, "%s dies", name)
	}
	switch h.phase {
	case keyCalm:
		for j := uint8(1); j <= s.n; j++ {
			if r := s.jobs[j]; r.status == wait && r.due || r.status == claim2 && r.by == died {
				n := s
				n.workers[w] = keyWorker{phase: toClaim, job: j, stamp: r.stamp, key: s.stamp}
				n.workers[w].frees = s.free && (!m.superseded(&s, j) || m.f.freesBlind)
				n.workers[w].superseded = s.free && !n.workers[w].frees && r.status == claim2 && !m.f.takesBlind
				m.do(n, "%s reads job %d", name, j)
			}
		}
		return
	case toClaim:
		*my = keyWorker{}
		if q.stamp != h.stamp || (h.frees || h.superseded) && s.stamp != h.key && !m.f.freesBlind {
			m.do(n, "%s meets a conflict", name)
			return
		}
		if h.superseded {
			m.supersede(n, h.job, "%s finds that job %d is superseded", name, h.job)
			return
		}
		if q.value < s.claimed {
			n.broken = 5
		}
		n.claimed = max(s.claimed, q.value)
		n.set(h.job, claim2, uint8(w+1))
		*my = keyWorker{phase: toBegin, job: h.job, stamp: q.stamp, signal: q.signal}
		switch {
		case h.frees && m.f.freesLate:
			my.phase = toFree
		case h.frees:
			n.leaveKey(h.job)
		}
		if m.f.takesSignal {
			q.signal = 0
		}
		m.do(n, "%s claims job %d", name, h.job)
	case toFree:
		my.phase = toBegin
		n.leaveKey(h.job)
		m.do(n, "%s leaves the key", name)
	case toBegin:
		my.phase = begun
		switch {
		case q.ended:
			n.broken = 1
		case q.told != 0 && q.told != h.signal:
			n.broken = 2
		case s.refused&(1<<h.signal) != 0:
			n.broken = 3
		}
		n.seen = max(s.seen, q.value)
		m.do(n, "%s begins job %d", name, h.job)
	default:
		m.ends(s, w)
	}
}

// ends is the end of an attempt: it succeeds, or it takes the key again and waits.
func (m *keyMoves) ends(s keyState, w int) {
	h := s.workers[w]
	n := s
	my := &n.workers[w]
	name := fmt.Sprint("worker ", w+1)
	mine := s.jobs[h.job].stamp == h.stamp
	if h.phase == begun {
		*my = keyWorker{}
		if mine {
			n.set(h.job, gone, 0)
			if s.holder == h.job {
				n.setKey(0, 0)
			}
		}
		m.do(n, "%s ends job %d", name, h.job)
		if s.left.fails > 0 && mine {
			n = s
			n.left.fails--
			my.phase, my.key, my.superseded = toRetry, s.stamp, m.superseded(&s, h.job)
			m.wrong(n, "%s has failed job %d, and reads the key: job %d", name, h.job, s.holder)
		}
		return
	}
	switch {
	case !mine:
		*my = keyWorker{}
		m.do(n, "%s has lost job %d", name, h.job)
		return
	case s.stamp != h.key:
		my.key, my.superseded = s.stamp, m.superseded(&s, h.job)
		m.do(n, "%s reads the key again: job %d", name, s.holder)
		return
	case h.superseded && m.f.retryWins:
		n.set(s.holder, gone, 0)
	case h.superseded:
		*my = keyWorker{}
		m.supersede(n, h.job, "%s ends job %d, which is superseded", name, h.job)
		return
	}
	*my = keyWorker{}
	n.set(h.job, wait, 0)
	n.jobs[h.job].due = false
	if s.has() != h.job {
		n.setKey(h.job, 0)
	}
	m.do(n, "%s writes that job %d waits again", name, h.job)
}

// supersede ends a job since a newer one of the key was stored.
func (m *keyMoves) supersede(n keyState, j uint8, format string, args ...any) {
	if n.set(j, gone, 0); n.values <= n.jobs[j].value {
		n.broken = 6
	}
	m.do(n, format, args...)
}

// canon returns one of the states that differ only in who is which worker.
func (s keyState) canon() keyState {
	a, b := s.workers[0], s.workers[1]
	if a.phase < b.phase || a.phase == b.phase && a.job <= b.job {
		return s
	}
	s.workers[0], s.workers[1] = b, a
	for j := range s.jobs {
		if q := &s.jobs[j]; q.by == 1 || q.by == 2 {
			q.by = 3 - q.by
		}
	}
	return s
}

func (s keyState) check() string {
	waiting := 0
	for _, q := range s.jobs {
		if q.status == wait {
			waiting++
		}
	}
	switch {
	case s.broken > 0:
		return keyPromises[s.broken]
	case waiting > 1:
		return twoWait
	case s.ended() && s.seen < s.values:
		return lastValue
	}
	return ""
}

func (s keyState) ended() bool {
	for _, q := range s.jobs {
		if q.status == wait || q.status == claim2 {
			return false
		}
	}
	return s.adders[0].phase+s.adders[1].phase+s.signals.phase+s.stops.phase == keyCalm
}

// keyWorld is how many calls there are of each kind, and what may go wrong.
type keyWorld struct {
	adds, otherAdds, signals, cancels uint8
	free                              bool
	left                              mishaps
}

func exploreKeys(w keyWorld, f keyFaults) (broken string, path []string, count int) {
	start := keyState{free: w.free, left: w.left}
	start.adders[0].left, start.adders[1].left = w.adds, w.otherAdds
	start.signals.left, start.stops.left = w.signals, w.cancels
	return search(start, (&keyMoves{f: f}).from)
}

func TestKeys(t *testing.T) {
	for _, w := range []keyWorld{
		{adds: 2, otherAdds: 1, free: true, left: mishaps{fails: 1}},
		{adds: 2, otherAdds: 1, left: mishaps{crashes: 1}},
		{adds: 1, otherAdds: 1, free: true, left: mishaps{lost: 1, fails: 1}},
		{adds: 1, otherAdds: 1, free: true, left: mishaps{crashes: 1, fails: 1}},
		{adds: 1, signals: 2, cancels: 1, left: mishaps{lost: 1}},
		{adds: 1, signals: 1, cancels: 1, left: mishaps{crashes: 1, fails: 1}},
		{adds: 1, otherAdds: 1, signals: 1, left: mishaps{lost: 1}},
		{adds: 1, otherAdds: 1, cancels: 1, free: true},
		{adds: 1, otherAdds: 1, free: true, left: mishaps{fails: 2}},
		{adds: 1, otherAdds: 1, cancels: 1, free: true, left: mishaps{fails: 1}},
		{adds: 1, otherAdds: 1, signals: 1, cancels: 1, left: mishaps{fails: 1}},
		{adds: 1, otherAdds: 1, signals: 1, left: mishaps{fails: 1, lost: 1}},
	} {
		if broken, path, n := exploreKeys(w, keyFaults{}); broken != "" {
			t.Fatalf("%+v: %s:\n%s", w, broken, strings.Join(path, "\n"))
		} else {
			t.Logf("%d states: %+v", n, w)
		}
	}
}

func TestKeysFindsWhatIsWrong(t *testing.T) {
	replaces := keyWorld{adds: 2, otherAdds: 1, free: true, left: mishaps{fails: 1}}
	signals := keyWorld{adds: 1, signals: 1, cancels: 1, left: mishaps{crashes: 1, lost: 1}}
	for _, c := range []struct {
		promise string
		world   keyWorld
		faults  keyFaults
	}{
		{keyPromises[7], keyWorld{adds: 1, otherAdds: 1}, keyFaults{replacesDue: true}},
		{keyPromises[1], keyWorld{adds: 1, otherAdds: 1, cancels: 1}, keyFaults{fillsBlind: true}},
		{keyPromises[2], keyWorld{adds: 2, signals: 1}, keyFaults{losesSignal: true}},
		{keyPromises[1], keyWorld{adds: 1, otherAdds: 1}, keyFaults{replacesBlind: true}},
		{lastValue, keyWorld{adds: 1, otherAdds: 1, left: mishaps{lost: 1}}, keyFaults{repeatsBlind: true}},
		{keyPromises[4], replaces, keyFaults{readsOnce: true}},
		{keyPromises[4], replaces, keyFaults{freesLate: true}},
		{keyPromises[5], keyWorld{adds: 2, otherAdds: 1, free: true, left: mishaps{crashes: 1}}, keyFaults{freesBlind: true}},
		{twoWait, replaces, keyFaults{retriesBlind: true}},
		{lastValue, replaces, keyFaults{retryWins: true}},
		{keyPromises[6], keyWorld{adds: 1, otherAdds: 1, free: true, left: mishaps{fails: 2}}, keyFaults{byHolder: true}},
		{keyPromises[5], keyWorld{adds: 1, otherAdds: 1, free: true, left: mishaps{crashes: 1}}, keyFaults{takesBlind: true}},
		{keyPromises[2], signals, keyFaults{signalsBlind: true}},
		{keyPromises[3], signals, keyFaults{lostIsFalse: true}},
		{keyPromises[1], signals, keyFaults{cancelsBlind: true}},
		{keyPromises[2], signals, keyFaults{takesSignal: true}},
		{keyPromises[8], keyWorld{adds: 1, otherAdds: 1, signals: 1, cancels: 1, left: mishaps{fails: 1}}, keyFaults{firstBlank: true}},
		{keyPromises[8], keyWorld{adds: 1, otherAdds: 1, signals: 1, left: mishaps{fails: 1, lost: 1}}, keyFaults{firstBlank: true}},
	} {
		broken, path, n := exploreKeys(c.world, c.faults)
		if broken != c.promise {
			t.Errorf("%+v: %q, not %q:\n%s", c.faults, broken, c.promise, strings.Join(path, "\n"))
		}
		t.Logf("%s, found in %d states with %s:\n%s", broken, n, strings.Trim(fmt.Sprintf("%+v", c.faults), "{}"), strings.Join(path, "\n"))
	}
}
