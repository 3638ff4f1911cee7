package purgatory

// batch is how many operations a visit takes at a time. With more under a key than that it
// leaves marks in their ring: 112 to 160 bytes.
const batch = 32

// visit is a walk along the operations that are parked under a key as it begins, in their
// order. It takes them in batches, since no lock may be held while code of a user runs.
//
// Between two batches a mark keeps its place, and another one is where it has to end: behind
// the operations that were there when it began. Operations come and go meanwhile, and
// neither loses its place.
type visit[K comparable] struct {
	stripe  *stripe[K]
	key     K
	ops     [batch]*Op[K]
	n, next int // of ops: how many, and the one to visit next
	begun   bool
	marks   *marks[K] // nil: the first batch is all
}

type marks[K comparable] struct {
	at, end link[K]
}

// op returns the next operation that was still linked when its batch was taken, and nil at
// the end.
func (v *visit[K]) op() *Op[K] {
	if v.next == v.n {
		v.n, v.next = 0, 0
		v.take()
		if v.n == 0 {
			return nil
		}
	}
	o := v.ops[v.next]
	v.ops[v.next] = nil // keep nothing that has ended
	v.next++
	return o
}

// take takes the next batch.
func (v *visit[K]) take() {
	s := v.stripe
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !v.begun:
		v.begun = true
		if head := s.heads[v.key]; head != nil {
			v.begin(head)
		}
	case v.marks != nil:
		v.goOn()
	}
}

// begin is called with the stripe's lock held.
func (v *visit[K]) begin(head *link[K]) {
	if head.n > batch {
		v.marks = &marks[K]{at: link[K]{key: v.key}, end: link[K]{key: v.key}}
		v.marks.end.insertBefore(head)
	}
	v.collect(head, int(head.n))
}

// goOn is called with the stripe's lock held.
func (v *visit[K]) goOn() {
	l := v.marks.at.next
	v.stripe.remove(&v.marks.at)
	v.collect(l, batch)
}

// collect takes up to n operations from l on, and sets the mark behind them, or takes the
// marks away when there are no more. It is called with the stripe's lock held.
func (v *visit[K]) collect(l *link[K], n int) {
	n = min(n, batch)
	for v.marks == nil || l != &v.marks.end {
		if v.n == n {
			if v.marks != nil {
				v.marks.at.insertBefore(l)
			}
			return
		}
		if l.op != nil {
			v.ops[v.n] = l.op
			v.n++
		}
		l = l.next
	}
	v.stripe.remove(&v.marks.end)
	v.marks = nil
}
