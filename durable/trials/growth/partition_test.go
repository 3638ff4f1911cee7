package growth

import "time"

// model is what a commit takes, as the scenario bench measures it. A commit takes a number of
// syncs and, for each write in it, processor time.
type model struct {
	sync       time.Duration // a synced write
	write      time.Duration // processor time of a write
	few        int           // writes that are synced one by one
	batchSyncs int           // syncs of a larger commit
	most       int           // writes in one commit
	ahead      time.Duration // how long before it is due a job is claimed
}

// took returns what a commit of so many writes takes.
func (m *model) took(writes int) time.Duration {
	syncs := m.batchSyncs
	if writes <= m.few {
		syncs = writes
	}
	return time.Duration(syncs)*m.sync + time.Duration(writes)*m.write
}

// partition is a server that makes one commit at a time. What is asked for while one is
// under way waits for the next.
type partition struct {
	*simulation
	waiting    []func() // of each write that waits: what to do when it is committed
	committing bool
}

// add begins the life of a job, which is three writes: it is added, claimed some time
// before it is due, and done. It begins when it is due and its claim is committed.
func (p *partition) add(after time.Duration) {
	due := p.wheel.Now().Add(after)
	p.ask(func() {})
	p.after(after-p.ahead, func() {
		p.ask(func() {
			p.after(due.Sub(p.wheel.Now()), func() {
				p.late = append(p.late, p.wheel.Now().Sub(due))
				p.ask(func() {})
			})
		})
	})
}

// ask asks for a write.
func (p *partition) ask(committed func()) {
	p.waiting = append(p.waiting, committed)
	if !p.committing {
		p.commit()
	}
}

// commit begins a commit of what waits. When it is over the next begins, unless nothing
// waits.
func (p *partition) commit() {
	n := min(len(p.waiting), p.most)
	batch := p.waiting[:n:n]
	p.waiting = p.waiting[n:]
	p.committing = true
	p.writes += n
	p.commits++
	p.after(p.took(n), func() {
		for _, committed := range batch {
			committed()
		}
		p.committing = false
		if len(p.waiting) > 0 {
			p.commit()
		}
	})
}
