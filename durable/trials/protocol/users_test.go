package protocol

import "fmt"

// What users do: Add, Cancel, Move. Each step is one question or one write of the engine.

// openFor returns the near bucket of what is due: the first that was not closed.
func (m *moves) openFor(due uint8) uint8 {
	if m.faults.noWatermark {
		return due
	}
	return max(due, m.s.watermark+1)
}

// isFar reports whether what goes to a near bucket is stored in the far one first.
func (m *moves) isFar(b uint8) bool {
	return b >= 2 && m.s.clock < 1 && (!m.s.farClosed || m.faults.noWatermark)
}

// put stores a copy; false if the model has no room for one more.
func put(s *state, j, v int, b, due uint8, far bool) bool {
	ver := &s.jobs[j].versions[v]
	ver.bucket, ver.due = b, due
	at, gone := &ver.near, &ver.nearGone
	if far {
		at, gone = &ver.far, &ver.farGone
	}
	for c := range at {
		if at[c] == absent {
			at[c], gone[c] = stored, unremoved
			return true
		}
	}
	return false
}

// guard reports whether the mark that a write has to find missing is missing.
func (s *state) guard(b uint8, far bool) bool {
	if far {
		return !s.marked(0)
	}
	return !s.marked(b)
}

// add is Insert.
func (m *moves) add(j int) {
	s := &m.s
	job := &s.jobs[j]
	switch job.adding {
	case notAdded:
		for due := max(uint8(1), s.clock); due <= 2; due++ {
			if m.world.due > 0 && due != m.world.due {
				continue
			}
			n := *s
			n.jobs[j].due = due
			m.send(&n, j, "Add sends {j}, due at %d, to bucket {n}")
		}
	case placing:
		n := *s
		m.send(&n, j, "Add sends {j}, due at %d, to bucket {n} instead")
	case sending, repeating:
		m.insert(j)
	}
}

func (m *moves) send(n *state, j int, what string) {
	job := &n.jobs[j]
	b := m.openFor(job.due)
	job.adding, job.to, job.toFar = sending, b, m.isFar(b)
	if m.tell {
		what = fmt.Sprintf(what, job.due)
	}
	m.do(n, 0, what, 0, j, int(b))
}

// insert is a try to store a job. One that does not go to the bucket of its time is
// stored with a forward, as version 1.
func (m *moves) insert(j int) {
	s := &m.s
	job := &s.jobs[j]
	v := 0
	if job.to != job.due {
		v = 1
	}
	again := job.adding == repeating
	if again && v > 0 && job.newest >= 1 {
		n := *s
		n.jobs[j].accept()
		m.do(&n, 0, "the repeated Add finds the forward of {j}: accepted", 0, j, 0)
		return
	}
	guarded := !m.world.replicas || v > 0 || again && !m.faults.repeatsBlind
	if guarded && !s.guard(job.to, job.toFar) {
		n := *s
		switch {
		case again || m.faults.noWatermark:
			n.jobs[j].adding = refused
			if !again {
				m.broken = "an Add is refused though nothing failed"
			}
		default:
			n.jobs[j].adding = placing
		}
		m.do(&n, 0, "bucket {n} is closed: {j} is not stored", 0, j, int(job.to))
		return
	}
	n := *s
	if !put(&n, j, v, job.to, job.due, job.toFar) {
		return
	}
	n.jobs[j].newest = max(job.newest, uint8(v))
	lost := n
	n.jobs[j].accept()
	m.do(&n, 0, "{j} is stored in bucket {n}: accepted", 0, j, int(job.to))
	if s.left.lost > 0 && !again {
		lost.left.lost--
		lost.jobs[j].adding = repeating
		m.do(&lost, fault, "{j} is stored in bucket {n}, but the answer is lost", 0, j, int(job.to))
	}
}

func (j *job) accept() { j.adding, j.to, j.toFar = accepted, 0, false }

// open is isOpen: whether a near bucket was not closed. The mark may have been forgotten;
// then a bucket that may have been closed is open as long as something is in it.
func (m *moves) open(b uint8) bool {
	s := &m.s
	switch {
	case s.marked(b):
		return false
	case b > s.watermark || m.faults.marksOnly:
		return true
	default:
		return !s.nearEmpty(b) || b >= 2 && !s.farEmpty()
	}
}

// call is Cancel and Move.
func (m *moves) call(j int) {
	s := &m.s
	job := &s.jobs[j]
	c := job.call
	ver := &job.versions[c.version]
	n := *s
	nc := &n.jobs[j].call
	switch c.phase {
	case idle:
		if job.adding != accepted || job.told || j >= m.world.users {
			return
		}
		nc.phase, nc.version = reading, job.newest
		if m.world.cancel {
			m.do(&n, 0, "Cancel of {j} looks for it: version {n}", 0, j, int(job.newest))
		}
		if m.world.move && !job.again {
			nc.move = true
			m.do(&n, 0, "Move of {j} looks for it: version {n}", 0, j, int(job.newest))
		}
	case reading:
		m.read(j)
	case writing:
		if !s.is(ver, c.read, c.same) && !(m.faults.wildcard && ver.fate == claimed) {
			nc.phase, nc.version, nc.read, nc.same = reading, job.newest, none, false
			m.do(&n, 0, "the status of {j} has changed: its user reads again", 0, j, 0)
			return
		}
		if c.move {
			m.move(j)
			return
		}
		n.write(j, int(c.version), canceled, 0)
		nc.mine, nc.same = true, false
		nc.phase = confirming
		if !ver.ended {
			n.jobs[j].canceled = true
		} // else it was forgotten how it ended
		m.do(&n, 0, "Cancel writes that {j} is canceled", 0, j, 0)
		if s.left.lost > 0 {
			n.left.lost--
			nc.phase, nc.unsure, nc.read = reading, true, none
			m.do(&n, fault, "Cancel writes that {j} is canceled, but the answer is lost", 0, j, 0)
		}
	case confirming:
		if m.faults.cancelBlind || m.open(ver.bucket) {
			m.cancelTrue(j)
			return
		}
		nc.phase = takingBack
		m.do(&n, 0, "Cancel sees that the bucket of {j} is closed", 0, j, 0)
	case takingBack:
		if c.mine || m.faults.undoesBlind {
			n.write(j, int(c.version), none, 0)
		}
		if c.mine && job.canceled {
			n.jobs[j].versions[c.version].ended = false // as far as others can see
			if m.faults.lostIsFalse {
				m.broken = "Cancel returns false though it has canceled"
			}
		}
		n.jobs[j].call = call{}
		m.do(&n, 0, "Cancel takes back its status of {j}: nobody knows", 0, j, 0)
	}
}

// is reports whether the status of a version is the one that was read.
func (s *state) is(v *version, read fate, same bool) bool {
	return v.fate == read && (read == none || same)
}

// read is current: where the newest version is, and what became of it.
func (m *moves) read(j int) {
	s := &m.s
	job := &s.jobs[j]
	c := job.call
	ver := &job.versions[c.version]
	n := *s
	nc := &n.jobs[j].call
	f := ver.fate
	if f == none && !m.open(ver.bucket) {
		f = moved // or it has ended: the forward tells
	}
	switch {
	case f == canceled && c.mine && !m.faults.tokenUnknown:
		nc.phase = confirming
		m.do(&n, 0, "Cancel of {j} finds its own status", 0, j, 0)
	case f == moved && job.newest != c.version:
		nc.version = job.newest
		m.do(&n, 0, "the user of {j} follows its forward to version {n}", 0, j, int(job.newest))
	case f == none, f == freed:
		nc.phase, nc.read, nc.same = writing, f, f == freed
		m.do(&n, 0, "the user of {j} reads that it waits", 0, j, 0)
	default:
		// It returns false, or ErrUncertain if an answer was lost.
		if job.canceled && c.unsure && (m.faults.tokenUnknown || m.faults.lostIsFalse) {
			m.broken = "Cancel returns false though it has canceled"
		}
		n.jobs[j].call = call{}
		m.do(&n, 0, "the user of {j} reads that there is nothing to do", 0, j, 0)
	}
}

func (m *moves) cancelTrue(j int) {
	n := m.s
	job := &n.jobs[j]
	if job.done {
		m.broken = "Cancel returns true, and it has run"
	}
	for w := range n.workers {
		if n.workers[w].lease && n.workers[w].tasks[j].phase == running {
			m.broken = "Cancel returns true while it runs"
		}
	}
	job.told, job.call = true, call{}
	m.do(&n, 0, "Cancel of {j} returns true", 0, j, 0)
}

// move is Move: from bucket 1 to 2 or back. The status, the forward and the next version
// are one batch.
func (m *moves) move(j int) {
	s := &m.s
	c := s.jobs[j].call
	v := int(c.version)
	ver := &s.jobs[j].versions[v]
	to := 3 - s.jobs[j].due
	n := *s
	b := m.openFor(to)
	if to < s.clock || s.marked(ver.bucket) || s.marked(b) || v+1 == versions {
		n.jobs[j].call = call{}
		m.do(&n, 0, "Move of {j} is refused", 0, j, 0)
		return
	}
	n.write(j, v, moved, 0)
	if !put(&n, j, v+1, b, to, m.isFar(b)) {
		return
	}
	n.jobs[j].newest, n.jobs[j].due, n.jobs[j].again = uint8(v+1), to, true
	n.jobs[j].call = call{}
	m.do(&n, 0, "Move of {j} stores its next version, due at {n}", 0, j, int(to))
}

// leaveFar is what Cancel and Move do once they are sure: the copies of the version that has
// ended leave the far bucket. It may come at any time after that, or never.
func (m *moves) leaveFar(j int) {
	job := &m.s.jobs[j]
	for v := range versions {
		ver := &job.versions[v]
		if ver.far == [copies]uint8{} || !(job.told && v == int(job.newest) || ver.fate == moved || m.faults.leavesEarly && job.call.phase == writing) {
			continue
		}
		n := m.s
		for c := range copies {
			if ver.far[c] != absent {
				n.remove(j, v, c, true)
			}
		}
		m.do(&n, 0, "the message of {j} leaves the far bucket, version {n}", 0, j, v)
	}
}
