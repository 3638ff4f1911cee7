package memory

import (
	"maps"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// Save returns a function that puts the Store back to how it is now, for tests. That is like
// a failover to a standby that lags, or a restore behind the workers: jobs that were added since are gone, ended ones are there again, and the engines
// and workers stay. It may be called several times.
func (m *Store) Save() (putBack func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.copy()
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		now := was.copy()
		m.jobs, m.over, m.schedules, m.flow, m.counted, m.begun = now.jobs, now.over, now.schedules, now.flow, now.counted, now.begun
		m.backs++
		m.change()
		m.end()
	}
}

// copy returns a Store with what is stored, and no more. m.mu is held, if others know m.
func (m *Store) copy() *Store {
	c := &Store{jobs: map[driver.Ref]*entry{}, over: maps.Clone(m.over), schedules: maps.Clone(m.schedules), flow: m.flow,
		counted: map[driver.LimitKey]*driver.Counter{}, begun: maps.Clone(m.begun)}
	for ref, j := range m.jobs {
		e := *j
		e.permits = slices.Clone(j.permits)
		c.jobs[ref] = &e
	}
	for key, counter := range m.counted {
		n := *counter
		c.counted[key] = &n
	}
	return c
}

// nextClaim returns a number that no claim has had, also before the Store was put back. m.mu is held.
func (m *Store) nextClaim() int {
	m.claims++
	return m.claims
}

// compare hands back claims of the worker that its Queue does not know.
func (w *worker) compare() {
	if w.c.Holds == nil || w.c.Notify == nil || w.e.open() != nil {
		return
	}
	var n driver.Notice
	refs, claims := w.claims(&n)
	known := w.c.Holds(refs) // without the lock
	w.handBack(refs, claims, known, &n)
	if n.WentBack != "" || n.Forgotten > 0 || n.Agreed {
		w.c.Notify(n)
	}
}

// claims returns the worker's claims, and notes whether the Store was put back.
func (w *worker) claims(n *driver.Notice) (refs []driver.Ref, claims []int) {
	m := w.e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.backs != m.backs {
		w.backs, n.WentBack = m.backs, "the Store was put back"
	}
	for ref, j := range m.jobs {
		if j.state == driver.Running && j.by == w.c.Name {
			refs, claims = append(refs, ref), append(claims, j.claim)
		}
	}
	return refs, claims
}

// handBack leaves unknown claims as those of a dead worker.
func (w *worker) handBack(refs []driver.Ref, claims []int, known []bool, n *driver.Notice) {
	m := w.e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, ref := range refs {
		if j := m.jobs[ref]; !known[i] && j != nil && j.claim == claims[i] {
			j.by, j.since = "", time.Time{}
			m.free(j)
			n.Forgotten++
		}
	}
	was := w.apart
	w.apart = n.WentBack != "" || n.Forgotten > 0
	n.Agreed = was && !w.apart
	if n.Forgotten > 0 {
		m.change()
		m.end()
	}
}
