package purgatory

// Stats is what [Purgatory.Stats] and [Threshold.Stats] return. At any quiet moment
//
//	Parked = Satisfied + Expired + Canceled + Closed + Pending
//
// It encodes to JSON as it is.
type Stats struct {
	Parked    int64 // Accepted by Park and Wait, including Immediate.
	Satisfied int64 // Immediate included
	Expired   int64
	Canceled  int64
	Closed    int64
	Pending   int64 // Pending now.

	Immediate int64 // Operations whose condition held at the first call of try.
	Watched   int64 // Now: each pending operation counts once for each of its keys.
	Keys      int64 // Now: keys with a pending operation.
	Checks    int64 // Calls of a try.
}

// ended counts an end.
func (st *Stats) ended(o Outcome) {
	switch o {
	case Satisfied:
		st.Satisfied++
	case Expired:
		st.Expired++
	case Canceled:
		st.Canceled++
	case Closed:
		st.Closed++
	}
}

// Stats returns what the purgatory has done and what it holds. It may be called at any
// time, after Close too. It costs some microseconds: it takes the locks of the 64 stripes
// one after the other. The figures of one stripe belong together, and those of the next
// are a moment younger.
func (p *Purgatory[K]) Stats() Stats {
	p.mustBeMade("Stats")
	var st Stats
	for i := range p.stripes {
		p.stripes[i].addTo(&st)
	}
	return st
}

func (s *stripe[K]) addTo(st *Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Parked += s.parked
	st.Satisfied += s.ended[Satisfied]
	st.Expired += s.ended[Expired]
	st.Canceled += s.ended[Canceled]
	st.Closed += s.ended[Closed]
	st.Pending += s.pending
	st.Immediate += s.immediate
	st.Watched += s.watched
	st.Keys += int64(s.heads.Len())
	st.Checks += s.checks.Load()
}

// Stats returns what the threshold has done and what it holds, in the terms of a
// [Purgatory] with one key: Watched equals Pending, Keys is 1 if anything waits and
// otherwise 0, and Checks is 0. Parked counts calls of Park and Await, and Immediate
// counts those that found the number high enough. It may be called at any time, after
// Close too. O(1).
func (t *Threshold[V]) Stats() Stats {
	t.mustBeMade("Stats")
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.stats
	st.Watched, st.Keys = st.Pending, min(st.Pending, 1)
	return st
}
