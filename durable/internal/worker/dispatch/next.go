package dispatch

import "github.com/tickwheel/tickwheel/durable/driver"

// minUnwritten is how many ends may wait to be written down however few handlers may
// run, so that a commit is for many.
const minUnwritten = 64

// Next chooses what begins, and returns what has to be done since the last call. It begins nothing
// while the lease is not sound. It is to be called after each other call.
func (d *Dispatcher) Next(now Moment, sound bool) *Actions {
	if d.agenda.recheck {
		d.agenda.recheck = d.slots.start(now, sound)
	}
	return d.agenda.take()
}

// take returns the tasks so far, and begins a list on the arrays of the one before.
func (a *agenda) take() *Actions {
	a.Actions, a.made = a.made, a.Actions
	*a.Actions = Actions{Begin: kept(a.Begin), Bury: kept(a.Bury), Timers: kept(a.Timers), Kinds: kept(a.Kinds)}
	return a.made
}

// keepActions is how many elements the slices of an Actions keep their arrays for.
const keepActions = 1024

// kept returns the empty slice on the array of s.
func kept[T any](s []T) []T {
	if cap(s) > keepActions {
		return nil
	}
	clear(s)
	return s[:0]
}

// start begins jobs that are ready, or reserves a slot for them and queues them for the
// claim, the longest due first, while there is a slot. Running jobs, and ended jobs whose
// end is not stored yet, may run again after a kill, so both are bounded. True: call it
// again when the lease is sound.
func (s *slots) start(now Moment, sound bool) bool {
	for {
		taken := s.held.counts[running] + s.reserved
		if taken >= s.c.Concurrency || taken+s.held.counts[ending] >= max(s.c.Concurrency, minUnwritten) {
			return false
		}
		k, queue := s.pickNext(now)
		if queue == nil {
			if !s.timing.claimSince.IsZero() && !s.timing.lookAgain {
				s.timing.watchClaim()
			}
			return false
		}
		if !sound {
			s.agenda.Renew = true
			return true
		}
		j := (*queue)[0]
		*queue = shift(*queue, 1)
		if j.limits != nil && j.limits.lane != nil {
			s.gates.pass(j, s.begun+1)
		}
		s.held.updateKind(k)
		s.begun++
		j.kind.queues.running++
		s.agenda.Claim = true // ready can have one more
		if j.phase == ready {
			s.begin(j, now)
			continue
		}
		s.reserved++
		j.reserved = true
		if j.crashes > 0 {
			s.onTrial = append(s.onTrial, j)
		}
		s.held.set(j, claimable)
		s.exact = append(s.exact, j)
	}
}

// pickNext returns the queue whose head is the next to begin: of the priority that is first in order
// the longest due, but of suspects the one with the fewest crashes. Jobs to come of the priorities
// before it keep their slots.
func (s *slots) pickNext(now Moment) (k *kindQueue, queue *[]*Job) {
	order, active := priorityOrder(s.begun+1), s.held.activeKinds()
	for i, priority := range order {
		if k, queue = s.pickOf(priority, order[:i], active, now); queue == nil {
			continue
		}
		free := s.c.Concurrency - s.held.counts[running] - s.reserved
		for _, other := range active {
			free -= s.timing.coming(other, order[:i], now)
		}
		if free <= 0 {
			return nil, nil
		}
		return k, queue
	}
	return nil, nil
}

// pickOf is pickNext of one priority, after those before it. To count the jobs to come is
// expensive, so only kinds that have something to begin are counted.
func (s *slots) pickOf(priority int, before []int, active []*kindQueue, now Moment) (k *kindQueue, queue *[]*Job) {
	var suspect *kindQueue
	for _, other := range active {
		suspects := other.suspects
		tried := len(suspects) > 0 && suspects[0].priority == priority
		if len(other.ready[priority]) == 0 && len(other.last[priority]) == 0 && !tried && other.inLanes == 0 {
			continue
		}
		if other.queues.running+s.timing.coming(other, before, now) >= other.limit {
			continue
		}
		better := func(q *[]*Job) {
			if len(*q) > 0 && (queue == nil || longerDue((*q)[0], (*queue)[0])) {
				k, queue = other, q
			}
		}
		better(&other.ready[priority])
		better(&other.last[priority])
		if other.inLanes > 0 {
			if lane := other.nextLane(priority); lane != nil {
				better(&lane.jobs[priority])
			}
		}
		if tried && (suspect == nil || byCrashes(suspects[0], suspect.suspects[0]) < 0) {
			suspect = other
		}
	}
	if suspect != nil && s.mayTry(suspect.suspects[0]) && (queue == nil || longerDue(suspect.suspects[0], (*queue)[0])) {
		return suspect, &suspect.suspects
	}
	return k, queue
}

func longerDue(a, b *Job) bool { return a.Delivery.Record.Due.Before(b.Delivery.Record.Due) }

// begin begins a job that has a slot, counted in its kind.
func (s *slots) begin(j *Job, now Moment) {
	if j.reserved {
		j.reserved = false
		s.reserved--
	}
	s.held.set(j, running)
	if j.limits != nil {
		j.limits.began = now.Local
	}
	if j.crashes > 0 {
		s.agenda.timer(Timer{After: s.c.Lease, what: trialOver, job: j})
	}
	s.agenda.Begin = append(s.agenda.Begin, j)
}

// come is called when the time of a job should have come that is to be claimed exactly.
func (d *Dispatcher) come(j *Job, now Moment) {
	if early := now.until(j.Delivery.Record.Due); early > 0 {
		d.agenda.timer(Timer{After: early, what: due, job: j})
		return
	}
	d.await(j, now)
	d.agenda.recheck = true
}

// await queues a due job whose claim is exact.
func (d *Dispatcher) await(j *Job, now Moment) {
	switch {
	case j.crashes > 0 && j.limits != nil && d.gates.isPaused(j):
		d.agenda.timer(Timer{After: driver.RetryInterval, what: due, job: j})
	case j.crashes > 0:
		d.slots.quarantine(j)
	case j.limits != nil:
		d.join(j, now)
	default:
		k := j.kind.queues
		k.last.add(j)
		d.held.set(j, queued)
		d.held.activate(k)
	}
}

// proceed queues a claimed job whose time has come, by the engine's clock as it is known
// now. Other jobs wait for their time.
func (d *Dispatcher) proceed(j *Job, now Moment) {
	if j.phase != claimed {
		return // it was canceled
	}
	early := now.until(j.Delivery.Record.Due)
	if !j.token.IsZero() {
		early = max(early, j.token.Sub(now.Local))
	}
	switch {
	case early > 0:
		d.agenda.timer(Timer{After: min(early, d.c.Lease), what: proceed, job: j})
	case j.Attempt > j.Delivery.Record.MaxAttempts:
		d.slots.vacate(j)
		d.held.set(j, ending)
		d.agenda.Bury = append(d.agenda.Bury, j)
	case j.reserved:
		d.slots.begin(j, now)
	default:
		d.held.set(j, ready)
		k := j.kind.queues
		k.ready.add(j)
		d.held.activate(k)
		d.agenda.recheck = true
	}
}
