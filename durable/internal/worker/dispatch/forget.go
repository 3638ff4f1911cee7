package dispatch

// How a job leaves the Dispatcher. A job that has ended, or has a newer version, is forgotten. All
// others are handed back, so that the engine can hand them out again.

// drop takes a job away, but not out of the queue that it may be in.
func (d *Dispatcher) drop(j *Job) {
	if j.reserved || j.crashes > 0 {
		d.vacate(j)
	}
	if j.limits != nil {
		d.leave(j)
	}
	d.counts[j.phase]--
	delete(d.jobs, j.Delivery.Ref)
	d.account(j, -1)
	d.recheck, d.out.Changed = true, true
}

// dropBack takes a job away that is to be handed back.
func (d *Dispatcher) dropBack(j *Job) {
	d.drop(j)
	d.out.Dropped = append(d.out.Dropped, j.Delivery)
	d.dropNewer(j)
}

// dropNewer hands back the newer version of a job.
func (d *Dispatcher) dropNewer(j *Job) {
	if j.newer != nil {
		d.out.Dropped = append(d.out.Dropped, j.newer)
		j.newer = nil
	}
}

// unready takes a job out of the queue of jobs that wait for a slot. Another job can then be
// claimed.
func (d *Dispatcher) unready(j *Job) {
	j.kind.queues.ready.remove(j)
	d.out.Claim = true
}

// clearQueues empties the queues of jobs that have not begun.
func (d *Dispatcher) clearQueues() {
	d.exact = nil
	for _, k := range d.kinds {
		k.queues.claimable, k.queues.ready, k.queues.last, k.queues.suspects = priorities{}, priorities{}, priorities{}, nil
		k.lanes, k.turns, k.inLanes = nil, nil, 0
		d.updateKind(k)
	}
	for _, g := range d.gates {
		g.parked = nil
	}
}
