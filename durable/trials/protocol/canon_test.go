package protocol

// canon returns one of the states that differ from s only in who is which worker and
// which job is which: the first in an order that may have ties, which cost states, but
// are no harm.
func canon(s state, w *world) state {
	s.drop()
	if w.alike() && s.jobs[1].order() < s.jobs[0].order() {
		s = s.swapJobs()
	}
	if !w.kinds && s.workers[1].order() < s.workers[0].order() {
		s = s.swapWorkers()
	}
	return s
}

// like reports whether s is what, up to who is who.
func (s state) like(what *state, w *world) bool {
	s.drop()
	if s == *what || !w.kinds && s.swapWorkers() == *what {
		return true
	}
	s = s.swapJobs()
	return w.alike() && (s == *what || s.swapWorkers() == *what)
}

// drop makes all jobs alike of which nothing is left.
func (s *state) drop() {
	for j := range s.jobs {
		if s.forgotten(j) {
			s.jobs[j] = job{adding: ended}
		}
	}
}

// forgotten reports whether a job has ended and nothing is left of it, so that it does
// not matter any more what it was. A user who asks for it gets to the closed bucket.
func (s *state) forgotten(j int) bool {
	job := &s.jobs[j]
	if !job.done && !job.told || job.call != (call{}) {
		return false
	}
	for v := range job.versions {
		if ver := &job.versions[v]; *ver != (version{bucket: ver.bucket, due: ver.due, holder: ver.holder, ended: ver.ended}) {
			return false
		}
	}
	for w := range s.workers {
		c := &s.workers[w].chore
		if s.workers[w].tasks[j] != (task{}) || c.phase != nothing && c.phase <= ackFar && int(c.job) == j {
			return false
		}
	}
	return true
}

func (j *job) order() (n uint64) {
	n = uint64(j.adding)<<60 | uint64(j.to)<<58 | uint64(j.due)<<56 | uint64(j.newest)<<54 |
		uint64(j.call.phase)<<51 | uint64(j.call.version)<<49
	for v := range j.versions {
		ver := &j.versions[v]
		n |= (uint64(ver.fate)<<8 | uint64(ver.far[0])<<6 | uint64(ver.far[1])<<4 | uint64(ver.near[0])<<2 | uint64(ver.near[1])) << (v * 11)
	}
	return n
}

func (w *worker) order() (n uint64) {
	for _, t := range w.tasks {
		n = n<<10 | uint64(t.phase)<<6 | uint64(t.version)<<4 | uint64(t.copy)<<2
		if t.same {
			n |= 1
		}
		if t.stale {
			n |= 2
		}
	}
	n = n<<24 | uint64(w.chore.asked)<<58 | uint64(w.chore.phase)<<20 | uint64(w.chore.bucket)<<16 | uint64(w.chore.upTo)
	if w.lease {
		n |= 1 << 60
	}
	return n
}

func (s state) swapJobs() state {
	s.jobs[0], s.jobs[1] = s.jobs[1], s.jobs[0]
	for w := range s.workers {
		wk := &s.workers[w]
		wk.tasks[0], wk.tasks[1] = wk.tasks[1], wk.tasks[0]
		c := &wk.chore
		switch {
		case c.phase >= down && c.phase <= ackFar:
			c.job = 1 - c.job
		case c.phase == noting, c.phase == purgeAll:
			c.upTo = c.upTo>>versions | c.upTo&(1<<versions-1)<<versions
		default:
			const n = versions * copies
			c.upTo = c.upTo>>n | c.upTo&(1<<n-1)<<n
		}
	}
	return s
}

func (s state) swapWorkers() state {
	s.workers[0], s.workers[1] = s.workers[1], s.workers[0]
	for j := range s.jobs {
		for v := range s.jobs[j].versions {
			if ver := &s.jobs[j].versions[v]; ver.holder == 1 || ver.holder == 2 {
				ver.holder = 3 - ver.holder
			}
		}
	}
	return s
}
