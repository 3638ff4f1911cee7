package dispatch

import (
	"slices"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// How a job leaves the Dispatcher. A job that has ended, or has a newer version, is forgotten. All
// others are handed back, so that the engine can hand them out again.

// drop takes a job away, but not out of the queue that it may be in.
func (d *Dispatcher) drop(j *Job) {
	if j.reserved || j.crashes > 0 {
		d.slots.vacate(j)
	}
	if j.limits != nil {
		d.gates.leave(j)
	}
	d.held.counts[j.phase]--
	delete(d.held.jobs, j.Delivery.Ref)
	d.held.account(j, -1)
	d.agenda.recheck, d.agenda.Changed = true, true
}

// sharesQueue reports whether a newer version of a job that waits belongs where the job is. A record that has gone into
// it may have another kind, lane or priority.
func (j *Job) sharesQueue(newer *driver.Record) bool {
	r := &j.Delivery.Record
	return r.Kind == newer.Kind && r.Lane == newer.Lane && r.Priority == newer.Priority
}

// takeOut takes a job that is not being claimed out of the queue that it is in, unless a slot is reserved for it.
func (d *Dispatcher) takeOut(j *Job) {
	k := j.kind.queues
	switch {
	case j.phase == fetched:
	case j.phase == claimable:
		k.claimable.remove(j)
	case j.limits != nil && j.limits.lane != nil:
		d.gates.leaveLane(j)
	case j.crashes > 0:
		k.suspects = slices.DeleteFunc(k.suspects, func(other *Job) bool { return other == j })
	default:
		k.last.remove(j)
	}
}

// dropBack takes a job away that is to be handed back.
func (d *Dispatcher) dropBack(j *Job) {
	d.drop(j)
	d.agenda.Dropped = append(d.agenda.Dropped, j.Delivery)
	d.agenda.dropNewer(j)
}

// dropWaiting hands back all jobs that have not begun. A job that is being claimed is dropped when the answer
// comes.
func (d *Dispatcher) dropWaiting() {
	for _, j := range d.held.jobs {
		switch {
		case j.phase == claiming:
			j.lost = true
		case j.phase < running:
			d.dropBack(j)
		}
	}
	d.slots.clearQueues()
}

// dropNewer hands back the newer version of a job.
func (a *agenda) dropNewer(j *Job) {
	if j.newer != nil {
		a.Dropped = append(a.Dropped, j.newer)
		j.newer = nil
	}
}

// unready takes a job out of the queue of jobs that wait for a slot. Another job can then be
// claimed.
func (v *inventory) unready(j *Job) {
	j.kind.queues.ready.remove(j)
	v.agenda.Claim = true
}

// clearQueues empties the queues of jobs that have not begun.
func (s *slots) clearQueues() {
	s.exact = nil
	for _, k := range s.held.kinds {
		k.queues.claimable, k.queues.ready, k.queues.last, k.queues.suspects = priorities{}, priorities{}, priorities{}, nil
		k.lanes, k.turns, k.inLanes = nil, nil, 0
		s.held.updateKind(k)
	}
	for _, g := range s.gates.byKey {
		g.parked = nil
	}
}
