package protocol

import (
	"strconv"
	"strings"
)

// world is what may happen in one exploration. In all of them there are two workers and
// two near buckets, and one more.
type world struct {
	name     string
	start    uint8 // what the clock shows at first: at 0 the far bucket is used
	replicas bool  // several, so that the first try of an Add has no condition
	cancel   bool
	move     bool
	again    bool // an attempt may fail, once
	release  bool
	jobs     int   // how many there are
	users    int   // how many of them have users who cancel or move them
	both     bool  // both workers move and close buckets at one time
	stale    bool  // what is handed out may wait for longer than anybody remembers
	due      uint8 // when jobs are due, 0 for 1 or 2
	prompt   bool  // what Add sends is stored before the clock goes on
	kinds    bool  // each job is of a kind that one worker can run, and the other cannot
	nobodys  bool  // with kinds: the second job nobody runs
	left     budget
	faults   faults
	watch    string // the promise to look at, empty for all
}

// alike reports whether it does not matter which job is which.
func (w *world) alike() bool { return !w.kinds && w.jobs == jobs && (w.users == 0 || w.users == jobs) }

// runs reports whether a worker can run a job. With kinds each bucket has a consumer for
// each of them.
func (w *world) runs(worker, j int) bool { return !w.kinds || worker == j && !w.isNobodys(j) }

func (w *world) isNobodys(j int) bool { return w.nobodys && j == 1 }

// faults puts back what was wrong once, or would be if somebody made it simpler.
type faults struct {
	staleIsGone      bool // a handle that is too old is acknowledged unseen
	lateIsGone       bool // moveLate takes each conflict for another's doing
	lateUnwritten    bool // moveLate writes no status before it asks
	lateUnseen       bool // moveLate does not ask whether its message is there still
	noWatermark      bool // nobody remembers how far buckets were closed
	watermarkFalls   bool // the watermark is what was closed last
	dueNow           bool // moveLate changes when a job is due
	beginsBlind      bool // nobody looks at the lease before a handler begins, or after it
	heartbeatHides   bool // a heartbeat after the lease was over drops nothing
	wildcard         bool // a condition does not see what is under way
	tokenUnknown     bool // who has lost an answer does not know its own status
	lostIsFalse      bool // Cancel says false when its answer was lost and the bucket closed
	repeatsBlind     bool // a repeated Add has no condition
	purgeIgnored     bool // a purge that fails ends nothing
	statusFirst      bool // statuses are removed before their jobs
	cancelBlind      bool // Cancel does not look at the mark
	forgetsFar       bool // statuses are removed without a look at the far bucket
	marksOnly        bool // only the mark says that a bucket was closed
	heartbeatsExpire bool // a lease is over when the server's clock says so
	undoesBlind      bool // who takes a status back removes what others have written, too
	onePurge         bool // a bucket is emptied as a whole up to where the kinds have ended that were there at the look
	thinsFates       bool // with what has ended of a kind its statuses are removed, without a mark
	leavesEarly      bool // the message leaves the far bucket before the job is canceled
	sweepsBlind      bool // what nobody runs is removed without a look at its statuses
	guardsOld        bool // another attempt is refused if its old bucket is closed
	noteless         bool // no note says that a bucket was empty
	claimsRemoved    bool // a claim does not look whether its message had been removed
	movesRemoved     bool // nor does moveLate
}

// fault is the kind of a move by which something goes wrong. What is promised to happen
// happens without them.
const fault = 1

// step is a move, and where it leads to.
type step struct {
	to     state
	kind   int
	what   string // in plain words; with names, if the moves are told
	broken string // the promise that it breaks
}

// moves finds all moves from a state.
type moves struct {
	s      state
	world  *world
	faults *faults
	tell   bool
	broken string // set before do, for its step
	steps  []step
}

// do adds a step. The words {w}, {j} and {n} of what stand for worker, job and number.
func (m *moves) do(to *state, kind int, what string, w, j, n int) {
	st := step{to: *to, kind: kind, what: what, broken: m.broken}
	if m.tell {
		st.what = strings.NewReplacer("{w}", "worker "+string(rune('A'+w)), "{j}", "job "+strconv.Itoa(j+1),
			"{n}", strconv.Itoa(n)).Replace(what)
	}
	if to.watermark < m.s.watermark {
		st.broken = "the watermark goes down"
	}
	if m.world.watch != "" && st.broken != m.world.watch {
		st.broken = ""
	}
	m.steps = append(m.steps, st)
	m.broken = ""
}

// from returns all moves from s.
func (m *moves) from(s *state) []step {
	m.s, m.steps = *s, m.steps[:0]
	m.clock()
	for j := range m.world.jobs {
		m.add(j)
		m.call(j)
		m.leaveFar(j)
		m.kill(j)
		for w := range workers {
			m.work(w, j)
			m.feed(w, j)
		}
	}
	for w := range workers {
		m.live(w)
		m.chores(w)
	}
	return m.steps
}

// clock is what befalls the clock and the server.
func (m *moves) clock() {
	s := &m.s
	if s.clock < maxClock && !(m.world.prompt && (s.jobs[0].adding == sending || s.jobs[1].adding == sending)) {
		n := *s
		n.clock++
		m.do(&n, 0, "the clock shows {n}", 0, 0, int(n.clock))
	}
	if s.left.back > 0 && s.clock >= 2 {
		n := *s
		n.left.back--
		n.clock = 0
		m.do(&n, fault, "the clock is set back to {n}", 0, 0, 0)
	}
	if s.left.leaps > 0 {
		n := *s
		n.left.leaps--
		n.leapt, n.marks = true, 0
		m.do(&n, fault, "the clock leaps by days and back: marks and heartbeats expire", 0, 0, 0)
	}
	if s.left.remade > 0 {
		for b := uint8(1); b <= maxClock; b++ {
			if _, some := s.snapshot(b, false); some {
				n := *s
				n.left.remade--
				n.each(b, func(_, _ int, v *version) {
					for c := range v.near {
						v.near[c] = min(v.near[c], stored)
					}
				})
				m.do(&n, fault, "the consumer of bucket {n} is lost, and hands out all once more", 0, 0, int(b))
			}
		}
	}
}

// kill is that a server is killed and takes the removal of one message back, and not that of statuses.
func (m *moves) kill(j int) {
	s := &m.s
	if s.left.kills == 0 {
		return
	}
	for v := range versions {
		ver := &s.jobs[j].versions[v]
		for c := range copies {
			for _, far := range []bool{false, true} {
				at, gone := ver.near[c], ver.nearGone[c]
				if far {
					at, gone = ver.far[c], ver.farGone[c]
				}
				if at != absent || gone == unremoved {
					continue
				}
				n := *s
				n.left.kills--
				back := &n.jobs[j].versions[v]
				if far {
					back.far[c] = stored
				} else {
					back.near[c] = stored
				}
				m.do(&n, fault, "a server is killed, and has version {n} of {j} again", 0, j, v)
			}
		}
	}
}

// check returns which promise a state breaks.
func (s *state) check() string {
	for j := range s.jobs {
		job := &s.jobs[j]
		live := job.done || job.canceled || job.adding != accepted
		for v := range job.versions {
			ver := &job.versions[v]
			live = live || ver.live()
			if ver.ended && !ver.fate.final() && ver.has(true) {
				return "a copy of what has ended has no status that says so"
			}
		}
		if !live {
			return "an accepted job is lost"
		}
	}
	return ""
}
