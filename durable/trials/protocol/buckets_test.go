package protocol

// What workers do with buckets: the far one is moved to near ones, and buckets close.

func (m *moves) chores(w int) {
	s := &m.s
	c := s.workers[w].chore
	switch {
	case c.phase == nothing && s.workers[1-w].chore.phase != nothing && !m.world.both:
	case c.phase == nothing:
		m.startCascade(w)
		m.startCloseFar(w)
		m.startCloseNear(w)
		m.resume(w)
	case c.phase <= ackFar:
		m.moveDown(w)
	case c.phase <= purgeFar:
		m.closeFar(w)
	default:
		m.closeNear(w)
	}
}

// startCascade takes a copy of the far bucket whose time has come.
func (m *moves) startCascade(w int) {
	s := &m.s
	if s.clock < 1 {
		return
	}
	for j := range s.jobs {
		for v := range versions {
			for c, is := range s.jobs[j].versions[v].far {
				if is == stored {
					n := *s
					n.workers[w].chore = chore{phase: down, job: uint8(j), version: uint8(v), copy: uint8(c)}
					m.do(&n, 0, "{w} is handed {j} of the far bucket, version {n}", w, j, v)
				}
			}
		}
	}
}

// moveDown stores a copy in its near bucket, and acknowledges it after that.
func (m *moves) moveDown(w int) {
	s := &m.s
	c := s.workers[w].chore
	j, v := int(c.job), int(c.version)
	ver := &s.jobs[j].versions[v]
	n := *s
	nc := &n.workers[w].chore
	switch {
	case c.phase == ackFar:
		if c.copy < copies {
			n.jobs[j].versions[v].far[c.copy] = acked
		}
		*nc = chore{}
		m.do(&n, 0, "{w} acknowledges {j} in the far bucket", w, j, 0)
	case ver.fate.final() && c.phase <= late:
		nc.phase = ackFar
		m.do(&n, 0, "{w} sees that {j} of the far bucket has ended", w, j, 0)
	case c.phase >= late:
		m.moveLate(w)
	case s.marked(ver.bucket):
		nc.phase = late
		m.do(&n, 0, "{w} cannot store {j} in bucket {n}: it is closed", w, j, int(ver.bucket))
	default:
		if !put(&n, j, v, ver.bucket, ver.due, false) {
			return
		}
		nc.phase = ackFar
		m.do(&n, 0, "{w} stores {j} in bucket {n}", w, j, int(ver.bucket))
	}
}

// moveLate takes care of a job whose near bucket was closed before it came there. First a
// status that says that it waits, then a look for its message: if that is there the job
// has not ended, and as long as that status is there it has not ended since. It is stored
// as a new version in the first open bucket, in one batch with the end of the old one.
func (m *moves) moveLate(w int) {
	s := &m.s
	c := s.workers[w].chore
	j, v := int(c.job), int(c.version)
	ver := &s.jobs[j].versions[v]
	n := *s
	nc := &n.workers[w].chore
	switch c.phase {
	case late:
		switch {
		case ver.fate == claimed && (int(ver.holder) == w+1 || !m.over(w, ver.holder)):
			*nc = chore{}
			m.do(&n, 0, "{w} leaves {j} to who has claimed it", w, j, 0)
		case m.faults.lateUnwritten:
			nc.phase = lateAsk
			m.do(&n, 0, "{w} sees that {j} waits", w, j, 0)
		default:
			n.write(j, v, freed, 0)
			nc.phase, nc.same = lateAsk, true
			m.do(&n, 0, "{w} writes that {j} waits, in order to move it", w, j, 0)
		}
	case lateAsk:
		if c.copy < copies && (ver.farGone[c.copy] != noted || m.faults.movesRemoved) || m.faults.lateUnseen {
			nc.phase = anew
			m.do(&n, 0, "{w} finds {j} in the far bucket still", w, j, 0)
			return
		}
		if c.same {
			n.write(j, v, none, 0)
		}
		if *nc = (chore{}); c.copy < copies {
			n.jobs[j].versions[v].far[c.copy] = acked
		}
		m.do(&n, 0, "{w} finds {j} gone from the far bucket", w, j, 0)
	case anew:
		m.storeAnew(w, j, v)
	}
}

func (m *moves) storeAnew(w, j, v int) {
	n := m.s
	nc := &n.workers[w].chore
	ver := m.s.jobs[j].versions[v]
	due := ver.due
	if m.faults.dueNow {
		due = max(1, n.clock)
	}
	b := m.openFor(due)
	if !nc.same && !(m.faults.lateUnwritten && ver.fate == none) || n.marked(b) || v+1 == versions {
		*nc = chore{}
		if m.faults.lateIsGone {
			*nc = chore{phase: ackFar, job: uint8(j), version: uint8(v), copy: nc.copy}
		}
		m.do(&n, 0, "{w} meets a conflict when it stores {j} anew", w, j, 0)
		return
	}
	n.write(j, v, moved, 0)
	if !put(&n, j, v+1, b, due, false) {
		return
	}
	n.jobs[j].newest = uint8(v + 1)
	n.closing |= 1 << ver.bucket // so that the status is removed some time
	nc.phase, nc.same = ackFar, false
	m.do(&n, 0, "{w} stores {j} in bucket {n} instead, as a new version", w, j, int(b))
}

// snapshot returns the bits of the copies of a bucket, and whether there are any and all
// of them are acknowledged.
func (s *state) snapshot(b uint8, far bool) (bits uint16, all bool) {
	all = true
	for j := range s.jobs {
		for v := range versions {
			ver := &s.jobs[j].versions[v]
			at := ver.near
			if far {
				at = ver.far
			} else if ver.bucket != b {
				continue
			}
			for c, is := range at {
				if is != absent {
					bits |= copyBit(j, v, c)
					all = all && is == acked
				}
			}
		}
	}
	return bits, all && bits != 0
}

func (s *state) purge(bits uint16, far bool) {
	for j := range jobs {
		for v := range versions {
			for c := range copies {
				if bits&copyBit(j, v, c) != 0 {
					s.remove(j, v, c, far)
				}
			}
		}
	}
}

func (m *moves) startCloseFar(w int) {
	bits, all := m.s.snapshot(0, true)
	if all && m.s.clock >= 1 {
		n := m.s
		n.workers[w].chore = chore{phase: markFar, upTo: bits}
		m.do(&n, 0, "{w} sees that all of the far bucket is acknowledged", w, 0, 0)
	}
}

func (m *moves) closeFar(w int) {
	n := m.s
	c := &n.workers[w].chore
	if c.phase == markFar {
		n.marks |= 1
		n.farClosed = true
		c.phase = purgeFar
		m.do(&n, 0, "{w} marks the far bucket", w, 0, 0)
		return
	}
	bits := c.upTo
	*c = chore{}
	n.purge(bits, true)
	m.do(&n, 0, "{w} removes from the far bucket what was acknowledged", w, 0, 0)
}

// startCloseNear is the look before a bucket is closed: its time is over, and nothing is
// in the far bucket that would still come to it.
func (m *moves) startCloseNear(w int) {
	s := &m.s
	for b := uint8(1); b < s.clock; b++ {
		if b >= 2 && !s.farEmpty() {
			continue
		}
		n := *s
		if s.nearEmpty(b) {
			if s.fates(b) != 0 && !s.marked(b) { // of jobs that never came here
				n.workers[w].chore = chore{phase: markNear, bucket: b}
				m.do(&n, 0, "{w} sees that bucket {n} has statuses alone", w, 0, int(b))
			}
			continue
		}
		n.workers[w].chore = chore{phase: viewed, bucket: b, kinds: m.kindsIn(b)}
		m.do(&n, 0, "{w} sees that it is time to close bucket {n}", w, 0, int(b))
	}
}

// kindsIn returns the kinds that a bucket has something of. Without kinds all is of one.
func (m *moves) kindsIn(b uint8) (kinds uint8) {
	if !m.world.kinds {
		return 1
	}
	m.s.each(b, func(j, _ int, v *version) {
		if !v.empty() {
			kinds |= 1 << j
		}
	})
	return kinds
}

// askKind asks the consumer of one kind whether all has ended, and up to where. If it has
// not, what has ended of another may be removed.
func (m *moves) askKind(w int) {
	n := m.s
	c := &n.workers[w].chore
	b, k := c.bucket, uint8(0)
	for c.kinds&(1<<k) == 0 || c.asked&(1<<k) != 0 {
		k++
	}
	bits, all := n.snapshot(b, false)
	switch {
	case m.world.isNobodys(int(k)) && c.seen == 0:
		if c.seen, _ = n.snapshotOf(b, int(k)); c.seen != 0 {
			m.do(&n, 0, "{w} reads what bucket {n} has of a kind that nobody runs", w, 0, int(b))
			return
		}
		bits, all = 0, false
	case m.world.isNobodys(int(k)):
		bits, all = c.seen, n.haveEnded(c.seen) || m.faults.sweepsBlind
		c.seen = 0
	case m.world.kinds:
		bits, all = n.snapshotOf(b, int(k))
	}
	switch {
	case !all && c.asked != 0:
		c.phase = thinning
		m.do(&n, 0, "{w} sees that bucket {n} is not done with, but a kind is", w, 0, int(b))
		return
	case !all:
		*c = chore{}
		m.do(&n, 0, "{w} sees that bucket {n} is not done with", w, 0, int(b))
		return
	}
	c.upTo |= bits
	if c.asked |= 1 << k; c.asked != c.kinds {
		m.do(&n, 0, "{w} sees that all of a kind in bucket {n} is acknowledged", w, 0, int(b))
		return
	}
	c.phase, c.kinds, c.asked = markNear, 0, 0
	if m.faults.onePurge {
		c.kinds = 1
	}
	m.do(&n, 0, "{w} sees that all of bucket {n} is acknowledged", w, 0, int(b))
}

// haveEnded reports whether the statuses of all versions that some copies are of say so.
func (s *state) haveEnded(copiesOf uint16) bool {
	for j := range jobs {
		for v := range versions {
			for c := range copies {
				if copiesOf&copyBit(j, v, c) != 0 && !s.jobs[j].versions[v].fate.final() {
					return false
				}
			}
		}
	}
	return true
}

// snapshotOf is snapshot of one kind in a near bucket.
func (s *state) snapshotOf(b uint8, j int) (bits uint16, all bool) {
	all = true
	for v := range versions {
		if ver := &s.jobs[j].versions[v]; ver.bucket == b {
			for c, is := range ver.near {
				if is != absent {
					bits |= copyBit(j, v, c)
					all = all && is == acked
				}
			}
		}
	}
	return bits, all && bits != 0
}

// resume goes on with a closing that was cut off.
func (m *moves) resume(w int) {
	for b := uint8(1); b <= maxClock; b++ {
		if m.s.closing&(1<<b) != 0 {
			n := m.s
			n.workers[w].chore = chore{phase: asking, bucket: b}
			m.do(&n, 0, "{w} goes on with the closing of bucket {n}", w, 0, int(b))
		}
	}
}

func (m *moves) closeNear(w int) {
	n := m.s
	c := &n.workers[w].chore
	b := c.bucket
	switch c.phase {
	case viewed:
		m.askKind(w)
	case thinning:
		bits := c.upTo
		*c = chore{}
		n.purge(bits, false)
		if m.faults.thinsFates {
			n.forgetOf(b, bits)
		}
		m.do(&n, 0, "{w} removes from bucket {n} what has ended of a kind", w, 0, int(b))
	case markNear:
		n.marks |= 1 << b
		n.closing |= 1 << b
		if !m.faults.noWatermark {
			n.watermark = max(n.watermark, b)
			if m.faults.watermarkFalls {
				n.watermark = b
			}
		}
		c.phase = purgeNear
		if m.faults.statusFirst {
			n.forget(b, n.fates(b))
		}
		m.do(&n, 0, "{w} marks bucket {n}", w, 0, int(b))
	case purgeNear:
		failed := n
		bits := c.upTo
		if c.kinds != 0 { // a fault
			bits, _ = n.snapshot(b, false)
		}
		c.phase, c.upTo, c.kinds = asking, 0, 0
		n.purge(bits, false)
		m.do(&n, 0, "{w} removes from bucket {n} what was acknowledged", w, 0, int(b))
		if m.faults.purgeIgnored && failed.left.lost > 0 {
			failed.left.lost--
			fc := &failed.workers[w].chore
			fc.phase, fc.upTo = purgeAll, failed.fates(b)
			m.do(&failed, fault, "{w} cannot remove anything from bucket {n}", w, 0, int(b))
		}
	case asking:
		if !n.nearEmpty(b) || b >= 2 && !n.farEmpty() && !m.faults.forgetsFar {
			*c = chore{}
			m.do(&n, 0, "{w} sees that there is something in bucket {n}, or its far one", w, 0, int(b))
			return
		}
		if c.phase, c.upTo = noting, n.fates(b); n.left.kills == 0 || m.faults.noteless {
			c.phase = purgeAll
		}
		n.note(b, removed, seenGone)
		m.do(&n, 0, "{w} sees that bucket {n} is empty", w, 0, int(b))
	case noting:
		c.phase = purgeAll
		n.note(b, seenGone, noted)
		m.do(&n, 0, "{w} notes that bucket {n} was empty", w, 0, int(b))
	case purgeAll:
		bits := c.upTo
		*c = chore{}
		n.forget(b, bits)
		n.closing &^= 1 << b
		m.do(&n, 0, "{w} removes the statuses of bucket {n}", w, 0, int(b))
	}
}

// note is what a closing learns, or writes, of the copies that were removed from a bucket and its far one.
func (s *state) note(b, from, to uint8) {
	s.each(b, func(_, _ int, v *version) {
		for c := range copies {
			if v.farGone[c] == from {
				v.farGone[c] = to
			}
			if v.nearGone[c] == from {
				v.nearGone[c] = to
			}
		}
	})
}

// fates returns the bits of the statuses of a bucket.
func (s *state) fates(b uint8) (bits uint16) {
	s.each(b, func(j, v int, ver *version) {
		if ver.fate != none {
			bits |= fateBit(j, v)
		}
	})
	return bits
}

func (s *state) forget(b uint8, bits uint16) {
	s.each(b, func(j, v int, ver *version) {
		if bits&fateBit(j, v) != 0 {
			s.write(j, v, none, 0)
		}
	})
}

// forgetOf removes the statuses of the versions that some copies are of.
func (s *state) forgetOf(b uint8, copiesOf uint16) {
	s.each(b, func(j, v int, ver *version) {
		for c := range copies {
			if copiesOf&copyBit(j, v, c) != 0 && ver.fate != none {
				s.write(j, v, none, 0)
			}
		}
	})
}
