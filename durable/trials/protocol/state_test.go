package protocol

// The sizes of the model. Near buckets are as wide as one step of the clock, and bucket b
// is of the moment b. Jobs are due in bucket 1 or 2; bucket 3 is there for what these do
// not take any more, and the clock does not get far enough to close it. Buckets 2 and 3
// are of the far bucket, which is moved from the moment 1 on.
const (
	workers  = 2
	jobs     = 2
	versions = 3 // of a job
	copies   = 2 // of a version, in one place
	maxClock = 3
)

// What there is of a copy.
const (
	absent = iota
	stored // not acknowledged: it is handed out some time, or once more
	acked
)

// How far it is that a copy was removed. A server that is killed may take a removal back as long as left.kills is not 0.
const (
	unremoved = iota
	removed   // and the next copy in its place is another one
	seenGone  // a closing has seen that its buckets are empty
	noted     // and the note of the near bucket says so
)

// fate is what the status of a version says.
type fate uint8

const (
	none fate = iota
	claimed
	freed
	done
	canceled
	moved
)

func (f fate) final() bool { return f >= done }

// died is the holder of what a worker had claimed whose process died.
const died = workers + 1

// version is a version of a job: its copies, and its status.
type version struct {
	bucket uint8 // near bucket of its subject; 0: it was never stored
	due    uint8
	far    [copies]uint8
	near   [copies]uint8
	fate   fate
	holder uint8 // of claimed: the number of a worker from 1, or died
	ended  bool  // what is true, whether or not the status is there still

	farGone, nearGone [copies]uint8
}

func (v *version) empty() bool { return v.near == [copies]uint8{} }

// has reports whether a copy is there that no note says was removed. With acks acknowledged copies
// count, too.
func (v *version) has(acks bool) bool {
	is := func(at, gone uint8) bool { return gone != noted && (at == stored || acks && at == acked) }
	for c := range copies {
		if is(v.far[c], v.farGone[c]) || is(v.near[c], v.nearGone[c]) {
			return true
		}
	}
	return false
}

// live reports whether a copy is there that may still be run.
func (v *version) live() bool { return !v.fate.final() && v.has(false) }

// How far an Add is.
const (
	notAdded = iota
	placing  // the bucket is to be chosen
	sending
	repeating // the answer was lost
	accepted
	refused // ErrUncertain
	ended   // it was accepted, and has ended, and nothing is left of it
)

// job is a job, what its user does, and what is true of it.
type job struct {
	adding uint8
	to     uint8 // the bucket that Add has chosen
	toFar  bool
	due    uint8 // as the user wants it; 0: not added yet

	newest uint8 // the version that the forward names, 0 if there is none

	call     call
	done     bool // it has run to its end
	canceled bool // a status says so that was its end
	told     bool // Cancel has returned true
	again    bool // it has had its one failed attempt, or its one Move
	versions [versions]version
}

// How far a Cancel or a Move is.
const (
	idle = iota
	reading
	writing
	confirming
	takingBack
)

// call is one Cancel or Move.
type call struct {
	phase   uint8
	move    bool
	version uint8
	read    fate // none or freed
	same    bool // the status is the one that was read
	mine    bool // the status is its own
	unsure  bool // an answer was lost
}

// How far a worker is with a job. From free to beginning nothing has begun.
const (
	away    = iota
	handed  // Fetch has handed it out
	seized  // the claim is written, the mark not looked at
	unknown // the answer to the claim was lost
	settling
	checking // the bucket is closed; is the message there?
	undoing  // it is not: the claim is to be removed
	mine     // waits for its time
	running  // the handler
	cut      // the handler was told that the lease is lost
)

// task is what a worker holds of a job.
type task struct {
	phase   uint8
	version uint8
	copy    uint8 // of the near bucket; copies: it is gone
	stale   bool
	same    bool // the status is as this task knows it, for seized and later its own
}

// What a worker does beside.
const (
	nothing = iota
	down    // cascade: a copy is to be stored in its near bucket
	late    // that is closed: a status is to say that the job waits
	lateAsk // it says so: is the message there?
	anew    // yes: it is to be stored in another bucket
	ackFar
	markFar // what was handed out is acknowledged: closeFar
	purgeFar
	viewed // closeNear: the far bucket was empty at the look
	markNear
	purgeNear
	asking   // is the bucket empty?
	noting   // it was: the note is to say so
	purgeAll // its statuses
	thinning // what has ended of a kind is removed, since another's has not
)

// chore is what a worker does beside its jobs: it moves or closes a bucket.
type chore struct {
	phase   uint8
	bucket  uint8 // of what closes
	job     uint8 // of what moves
	version uint8
	copy    uint8  // of the far bucket; copies: it is gone
	same    bool   // the status is its own
	upTo    uint16 // the copies, or the statuses, that a purge will remove
	kinds   uint8  // bit k: the bucket had something of the kind k at the look
	asked   uint8  // bit k: its consumer has said that all has ended
	seen    uint16 // the copies of a kind that nobody runs, as they were read
}

// moves reports whether a version is being moved.
func (c *chore) moves(j, v int) bool {
	return c.phase >= down && c.phase <= ackFar && int(c.job) == j && int(c.version) == v
}

type worker struct {
	lease bool // false: it is over, and the worker has not noticed
	tasks [jobs]task
	chore chore
}

// state is all that there is: the stream, its consumers, the workers, the users.
type state struct {
	clock     uint8 // the server's
	marks     uint8 // bit b: near bucket b is marked; bit 0: the far bucket
	closing   uint8 // bit b: p.<b> is there
	watermark uint8 // the highest near bucket that was ever closed
	farClosed bool  // the far bucket was ever closed
	leapt     bool  // what has a TTL is gone, also the heartbeats of living workers
	left      budget
	jobs      [jobs]job
	workers   [workers]worker
}

// budget is how often each thing may still go wrong.
type budget struct {
	crashes, leases, lost, back, leaps, remade, kills uint8
}

func (s *state) marked(b uint8) bool { return s.marks&(1<<b) != 0 }

// farEmpty reports whether nothing is in the far bucket.
func (s *state) farEmpty() bool {
	for j := range s.jobs {
		for v := range s.jobs[j].versions {
			if s.jobs[j].versions[v].far != [copies]uint8{} {
				return false
			}
		}
	}
	return true
}

// each calls f for all versions that are stored in a near bucket or on the way to it.
func (s *state) each(b uint8, f func(j, v int, ver *version)) {
	for j := range s.jobs {
		for v := range s.jobs[j].versions {
			if ver := &s.jobs[j].versions[v]; ver.bucket == b {
				f(j, v, ver)
			}
		}
	}
}

func (s *state) nearEmpty(b uint8) bool {
	empty := true
	s.each(b, func(_, _ int, v *version) { empty = empty && v.empty() })
	return empty
}

func copyBit(j, v, c int) uint16 { return 1 << ((j*versions+v)*copies + c) }
func fateBit(j, v int) uint16    { return 1 << (j*versions + v) }

// write replaces the status of a version. Whoever knew the one before does not know this
// one, and no purge that has its limit removes it.
func (s *state) write(j, v int, f fate, holder uint8) {
	ver := &s.jobs[j].versions[v]
	ver.fate, ver.holder = f, holder
	for w := range s.workers {
		if t := &s.workers[w].tasks[j]; int(t.version) == v {
			t.same = false
		}
		switch c := &s.workers[w].chore; {
		case c.phase == noting, c.phase == purgeAll:
			c.upTo &^= fateBit(j, v)
		case c.moves(j, v):
			c.same = false
		}
	}
	if c := &s.jobs[j].call; int(c.version) == v {
		c.same, c.mine = false, false
	}
	if f.final() {
		ver.ended = true
	}
}

// remove removes a copy from a near or the far bucket.
func (s *state) remove(j, v, c int, far bool) {
	ver := &s.jobs[j].versions[v]
	for w := range s.workers {
		wk := &s.workers[w]
		if t := &wk.tasks[j]; !far && t.phase != away && int(t.version) == v && int(t.copy) == c {
			t.copy = copies
		}
		ch := &wk.chore
		switch {
		case far && ch.moves(j, v) && int(ch.copy) == c:
			ch.copy = copies
		case far && ch.phase == purgeFar, far && ch.phase == markFar,
			!far && ch.phase == viewed, !far && ch.phase == thinning,
			!far && ch.phase == markNear, !far && ch.phase == purgeNear:
			ch.upTo &^= copyBit(j, v, c)
			ch.seen &^= copyBit(j, v, c)
		}
	}
	at, gone := &ver.near, &ver.nearGone
	if far {
		at, gone = &ver.far, &ver.farGone
	}
	if at[c], gone[c] = absent, unremoved; s.left.kills > 0 {
		gone[c] = removed
	}
}
