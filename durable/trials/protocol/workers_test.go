package protocol

// What workers do with jobs: feed, claim, begin, finish.

// feed hands out a copy. A consumer may hand out anything at any time; that of a bucket
// is read once its time has come, or if it is the first that is open.
func (m *moves) feed(w, j int) {
	s := &m.s
	if !s.workers[w].lease || s.workers[w].tasks[j].phase != away || !m.world.runs(w, j) {
		return
	}
	for v := range versions {
		ver := &s.jobs[j].versions[v]
		if ver.bucket == 0 || ver.bucket > s.clock && (ver.bucket != s.watermark+1 || m.faults.noWatermark) {
			continue
		}
		for c := range copies {
			if ver.near[c] != stored {
				continue
			}
			n := *s
			if ver.fate.final() {
				n.jobs[j].versions[v].near[c] = acked
				n.tidy(j, v)
				m.do(&n, 0, "{w} is handed {j}, version {n}, and sees that it has ended: acknowledged", w, j, v)
			} else {
				n.workers[w].tasks[j] = task{phase: handed, version: uint8(v), copy: uint8(c)}
				m.do(&n, 0, "{w} is handed {j}, version {n}", w, j, v)
			}
		}
	}
}

// ack acknowledges the message that a task has, and drops the task.
func (s *state) ack(w, j int) {
	t := s.workers[w].tasks[j]
	if t.copy < copies {
		s.jobs[j].versions[t.version].near[t.copy] = acked
	}
	s.workers[w].tasks[j] = task{}
}

// tidy removes the forward of a job that was canceled.
func (s *state) tidy(j, v int) {
	if job := &s.jobs[j]; job.versions[v].fate == canceled && int(job.newest) == v {
		job.newest = 0
	}
}

// work is one step of a worker with one job.
func (m *moves) work(w, j int) {
	s := &m.s
	t := s.workers[w].tasks[j]
	n := *s
	nt := &n.workers[w].tasks[j]
	switch t.phase {
	case handed:
		if m.world.stale && !t.stale {
			nt.stale = true
			m.do(&n, 0, "{w} has waited with {j} for longer than anybody remembers", w, j, 0)
		}
		m.claim(w, j)
	case unknown:
		nt.phase = handed
		what := "{w} reads the status of {j}: it is another's"
		if t.same {
			nt.phase, what = seized, "{w} reads the status of {j}: its own"
		}
		m.do(&n, 0, what, w, j, 0)
	case settling:
		if !t.same {
			nt.phase = handed
			m.do(&n, 0, "{w} comes too late to take over {j}", w, j, 0)
			return
		}
		m.seize(w, j, "{w} takes over {j}")
	case seized:
		v := &s.jobs[j].versions[t.version]
		switch {
		case !s.marked(v.bucket) && (v.bucket > s.watermark && !t.stale || m.faults.marksOnly):
			nt.phase = mine
			m.do(&n, 0, "{w} has claimed {j}, its bucket is open", w, j, 0)
		default:
			nt.phase = checking
			m.do(&n, 0, "{w} has claimed {j}, but its bucket was closed", w, j, 0)
		}
	case checking:
		if t.copy < copies && (s.jobs[j].versions[t.version].nearGone[t.copy] != noted || m.faults.claimsRemoved) {
			nt.phase = mine
			m.do(&n, 0, "{w} finds the message of {j}: claimed", w, j, 0)
			return
		}
		nt.phase = undoing
		m.do(&n, 0, "{w} finds the message of {j} gone", w, j, 0)
	case undoing:
		if t.same || m.faults.undoesBlind {
			n.write(j, int(t.version), none, 0)
		}
		n.ack(w, j)
		m.do(&n, 0, "{w} takes its claim of {j} back", w, j, 0)
	case mine:
		m.begin(w, j)
		if t.same {
			n.write(j, int(t.version), freed, 0)
		}
		n.workers[w].tasks[j] = task{}
		if m.world.release {
			m.do(&n, 0, "{w} hands {j} back", w, j, 0)
		}
	case running, cut:
		m.finish(w, j)
	}
}

// claim is the first step of Claim: the status is created, or there is one.
func (m *moves) claim(w, j int) {
	s := &m.s
	t := s.workers[w].tasks[j]
	ver := &s.jobs[j].versions[t.version]
	n := *s
	switch {
	case t.stale && m.faults.staleIsGone, ver.fate.final():
		n.ack(w, j)
		n.tidy(j, int(t.version))
		m.do(&n, 0, "{w} takes {j} for ended, and acknowledges it", w, j, 0)
	case ver.fate == none:
		m.seize(w, j, "{w} creates the status of {j}: claimed")
	case ver.fate == freed, m.over(w, ver.holder):
		nt := &n.workers[w].tasks[j]
		nt.phase, nt.same = settling, true
		m.do(&n, 0, "{w} sees that {j} was claimed, and by nobody who lives", w, j, 0)
	}
}

// over is leaseOf: whether the lease of a claim's holder is over for w.
func (m *moves) over(w int, holder uint8) bool {
	s := &m.s
	switch {
	case holder == died, int(holder) == w+1:
		return true
	case m.faults.heartbeatsExpire && s.leapt:
		return true
	}
	return !s.workers[holder-1].lease
}

// seize writes the status of a claim.
func (m *moves) seize(w, j int, what string) {
	n := m.s
	t := &n.workers[w].tasks[j]
	n.write(j, int(t.version), claimed, uint8(w+1))
	t.phase, t.same = seized, true
	m.do(&n, 0, what, w, j, 0)
	if n.left.lost > 0 {
		n.left.lost--
		t.phase = unknown
		m.do(&n, fault, what+", but the answer is lost", w, j, 0)
	}
}

// begin starts the handler: at its time by the engine's clock, and under a lease.
func (m *moves) begin(w, j int) {
	s := &m.s
	t := s.workers[w].tasks[j]
	job := &s.jobs[j]
	ver := &job.versions[t.version]
	if s.clock < ver.due || !s.workers[w].lease && !m.faults.beginsBlind {
		return
	}
	other := s.workers[1-w]
	switch {
	case job.told:
		m.broken = "what was canceled begins"
	case job.done, ver.ended && !job.canceled: // of a Cancel that has not returned true
		m.broken = "what has ended begins"
	case s.clock < job.due:
		m.broken = "it begins before its time"
	case other.tasks[j].phase == running && other.lease:
		m.broken = "two run it, each under a lease"
	}
	n := *s
	n.workers[w].tasks[j].phase = running
	m.do(&n, 0, "{w} begins {j}", w, j, 0)
}

// finish writes an end: done, or another attempt.
func (m *moves) finish(w, j int) {
	s := &m.s
	t := s.workers[w].tasks[j]
	v := int(t.version)
	ver := &s.jobs[j].versions[v]
	n := *s
	if !t.same {
		n.workers[w].tasks[j] = task{}
		m.do(&n, 0, "{w} ends {j}, but another has taken over", w, j, 0)
		return
	}
	n.write(j, v, done, 0)
	n.jobs[j].done = true
	if v > 0 {
		n.jobs[j].newest = 0
	}
	m.acks(&n, w, j, "{w} writes that {j} is done")
	if !m.world.again || s.jobs[j].again || v+1 == versions {
		return
	}
	n = *s
	b := m.openFor(ver.due)
	if s.marked(b) || m.faults.guardsOld && s.marked(ver.bucket) {
		m.broken = "a failed attempt cannot be written down"
	}
	n.write(j, v, moved, 0)
	if !put(&n, j, v+1, b, ver.due, false) {
		return
	}
	n.jobs[j].newest, n.jobs[j].again = uint8(v+1), true
	m.acks(&n, w, j, "{w} writes that {j} is to be tried again")
}

// acks acknowledges what has ended, unless that is lost.
func (m *moves) acks(n *state, w, j int, what string) {
	lost := *n
	n.ack(w, j)
	m.do(n, 0, what+", and acknowledges it", w, j, 0)
	if lost.left.lost > 0 {
		lost.left.lost--
		lost.workers[w].tasks[j] = task{}
		m.do(&lost, fault, what+", and its acknowledgment is lost", w, j, 0)
	}
}

// live is what befalls a worker: its lease is over, it notices, it dies.
func (m *moves) live(w int) {
	s := &m.s
	wk := &s.workers[w]
	holds := wk.tasks != [jobs]task{}
	n := *s
	switch {
	case wk.lease && holds && s.left.leases > 0:
		n.left.leases--
		n.workers[w].lease = false
		m.do(&n, fault, "the lease of {w} is over: it was frozen, or cut off", w, 0, 0)
	case !wk.lease:
		n.workers[w].lease = true
		for j := range n.workers[w].tasks {
			switch t := &n.workers[w].tasks[j]; {
			case t.phase == running:
				t.phase = cut
			case t.phase < running && !m.faults.heartbeatHides && !m.faults.beginsBlind:
				*t = task{}
			}
		}
		m.do(&n, 0, "{w} notices that its lease was over, drops what has not begun, and writes a heartbeat", w, 0, 0)
	}
	if s.left.crashes > 0 && (holds || wk.chore != chore{}) {
		n = *s
		n.left.crashes--
		n.workers[w] = worker{lease: true}
		for j := range n.jobs {
			for v := range n.jobs[j].versions {
				if ver := &n.jobs[j].versions[v]; int(ver.holder) == w+1 {
					ver.holder = died
				}
			}
		}
		m.do(&n, fault, "{w} dies, and another takes its place", w, 0, 0)
	}
}
