package dispatch

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A job that a limit covers, or that is paused, waits unclaimed in the queue of its kind and
// lane. It is claimed exactly, like a suspect, and the claim takes its permits and tokens with
// it: the engine counts, and no worker has to know what others run. The lanes of a kind take
// turns.
//
// A worker claims no more than may be granted, as far as it knows: each limit, or lane
// under one, is a gate. It is shut while the worker has all permits of it itself; when a claim
// was refused, until a permit is announced or the token comes; and only so many claims are under
// way at a time.
//
// A laneQueue holds a bounded number of jobs, and others are deferred: handed back for a while. Else
// one lane with many jobs would fill the worker, and no other would be handed to it.

const (
	minInLane = 64   // jobs that a laneQueue holds, whatever its limits are
	maxInLane = 512  // and at most: a quarter of what a kind may hold, see maxUnclaimed
	maxServed = 4096 // lanes of a kind whose last turn is known
	laneTime  = 2 * time.Second

	leastDeferral = 250 * time.Millisecond
	mostDeferral  = 5 * time.Minute

	// comeBack is the time between two jobs of a kind that were deferred, at most: where a
	// handler that took long is fast again they are what there is to do. It is no shorter than
	// need be, since those that come too early cost two commits, and of a lane with 100,000
	// jobs nearly all do.
	comeBack = 2 * time.Millisecond

	// tokensAtOnce is for how long tokens are left to come, where many come, so that one
	// claim is for all of them. The rest of TokenAhead is for its commit.
	tokensAtOnce = driver.TokenAhead / 4
)

// most is how many claims may be under way at a time, at most.
func (g *limitGate) most() int {
	n := maxClaims
	if g.limit.Running > 0 {
		n = min(n, g.limit.Running)
	}
	if gap := g.limit.Gap(); gap > 0 {
		n = min(n, g.limit.Burst+int(min(driver.TokenAhead/gap, maxClaims)))
	}
	return n
}

func (g *limitGate) isOpen() bool {
	return !g.full && !g.outOfTokens && g.claims < g.window &&
		(g.limit.Running == 0 || g.taken < g.limit.Running)
}

// shutGate returns the first that is shut, or nil.
func shutGate(gates []*limitGate) *limitGate {
	for _, g := range gates {
		if !g.isOpen() {
			return g
		}
	}
	return nil
}

// gatesOf returns the gates for limits of a lane.
func (s *gateSet) gatesOf(limits []*driver.StoredLimit, lane string, perLane bool) (gates []*limitGate) {
	for _, l := range limits {
		if l.PerLane != perLane {
			continue
		}
		key := l.Key(lane)
		g := s.byKey[key]
		if g == nil {
			g = &limitGate{limit: l, key: key}
			g.window = g.most()
			s.byKey[key] = g
		}
		gates = append(gates, g)
	}
	return gates
}

// cover notes whether a limit or a pause covers a job. One that has passed gates keeps them.
func (s *gateSet) cover(j *Job) {
	limits, paused := s.covering(j.Delivery.Record.Kind, j.Delivery.Record.Lane)
	switch covered := len(limits) > 0 || paused; {
	case covered && j.limits == nil:
		j.limits = &limited{}
	case !covered && j.limits != nil && len(j.limits.gates) == 0:
		j.limits = nil
	}
}

// isPaused reports whether a job is paused.
func (s *gateSet) isPaused(j *Job) bool {
	_, paused := s.covering(j.Delivery.Record.Kind, j.Delivery.Record.Lane)
	return paused
}

// laneOf returns the laneQueue of a job.
func (s *gateSet) laneOf(j *Job) *laneQueue {
	k, name := j.kind, j.Delivery.Record.Lane
	lane := k.lanes[name]
	if lane == nil {
		limits, paused := s.covering(k.kind, name)
		lane = &laneQueue{kind: k, name: name, gates: s.gatesOf(limits, name, true), paused: paused, served: k.served[name]}
		if k.lanes == nil {
			k.lanes = map[string]*laneQueue{}
		}
		k.lanes[name] = lane
		k.queue(lane)
	}
	return lane
}

// queue puts a lane among those that wait for a turn. The lane whose last turn is the longest ago is
// the first.
func (k *kindQueue) queue(lane *laneQueue) {
	i, _ := slices.BinarySearchFunc(k.turns, lane.served, func(other *laneQueue, served int) int {
		if other.served <= served {
			return -1
		}
		return 1
	})
	k.turns = slices.Insert(k.turns, i, lane)
}

// unqueue takes a lane out of the turns, if it is there.
func (k *kindQueue) unqueue(lane *laneQueue) bool {
	i := slices.Index(k.turns, lane)
	if i >= 0 {
		k.turns = slices.Delete(k.turns, i, i+1)
	}
	return i >= 0
}

// noteTurn notes that a lane has its turn: turn is the number of the job, counted over all lanes. It is known also when nothing waits there any
// more: else a lane whose jobs come one by one would be the first each time. Entries older than
// every waiting lane can be dropped.
func (lane *laneQueue) noteTurn(turn int) {
	k := lane.kind
	lane.served = turn
	if len(k.served) >= maxServed {
		least := lane.served
		for _, other := range k.turns {
			least = min(least, other.served)
		}
		maps.DeleteFunc(k.served, func(_ string, served int) bool { return served < least })
	}
	if k.served == nil || len(k.served) >= maxServed {
		k.served = map[string]int{}
	}
	k.served[lane.name] = lane.served
}

// missTurn takes back the turn of a job that was refused: its lane is the next again.
func (j *Job) missTurn() {
	k, name, served := j.kind, j.Delivery.Record.Lane, j.limits.served
	if k.served[name] <= served {
		return
	}
	k.served[name] = served
	if lane := k.lanes[name]; lane != nil {
		lane.served = served
		if k.unqueue(lane) {
			k.queue(lane)
		}
	}
}

// join puts a job into the queue of its lane. If that is too long, the last job of the lane is
// deferred, except with a clock that is set by hand, since a deferral passes by real time.
func (d *Dispatcher) join(j *Job, now Moment) {
	d.held.set(j, queued)
	lane := d.gates.laneOf(j)
	jobs := &lane.jobs[j.priority]
	i, _ := slices.BinarySearchFunc(*jobs, j, func(a, b *Job) int { return a.Delivery.Record.Due.Compare(b.Delivery.Record.Due) })
	*jobs = slices.Insert(*jobs, i, j)
	j.limits.lane = lane
	lane.kind.inLanes++
	if lane.name != "" && !lane.kind.paused && !d.c.Manual && lane.jobs.len() > lane.bound() {
		d.deferLast(lane, now)
	}
	d.held.activate(lane.kind)
}

// bound is how many jobs a lane holds: those that begin in some seconds, and some for each permit.
func (lane *laneQueue) bound() int {
	n := minInLane
	for _, gates := range [][]*limitGate{lane.kind.gates, lane.gates} {
		for _, g := range gates {
			n = max(n, min(4*g.limit.Running, maxInLane))
		}
	}
	if pace := lane.pace(); pace > 0 && !lane.paused {
		n = max(n, int(min(laneTime/pace, maxInLane)))
	}
	return n
}

// pace is about how long it takes a lane to get one job on. It is too low if other workers have
// permits, too: then a deferred job comes too early, and is deferred again.
func (lane *laneQueue) pace() time.Duration { return max(paceOf(lane.kind.gates), paceOf(lane.gates)) }

func paceOf(gates []*limitGate) (pace time.Duration) {
	for _, g := range gates {
		pace = max(pace, g.limit.Gap())
		if g.limit.Running > 0 {
			pace = max(pace, g.took/time.Duration(g.limit.Running))
		}
	}
	return pace
}

// comeBack is the time between two deferred jobs of a lane.
func (lane *laneQueue) comeBack() time.Duration {
	n := time.Duration(len(lane.kind.lanes))
	return min(max(paceOf(lane.kind.gates)*n, paceOf(lane.gates)), comeBack*n)
}

// deferLast defers the last job of a lane, for about as long as those before it take, or until its pause ends.
func (d *Dispatcher) deferLast(lane *laneQueue, now Moment) {
	priority := 2
	for len(lane.jobs[priority]) == 0 {
		priority--
	}
	jobs := &lane.jobs[priority]
	j := (*jobs)[len(*jobs)-1]
	*jobs = (*jobs)[:len(*jobs)-1]
	lane.kind.inLanes--
	j.limits.lane = nil
	_, paused := d.gates.flow.Covering(lane.kind.kind, lane.name, pausesAt(now))
	soonest := now.Local.Add(min(lane.pace(), mostDeferral) * time.Duration(lane.bound()))
	if end := now.Local.Add(min(paused, mostDeferral)); soonest.Before(end) {
		soonest = end
	}
	if lane.backAt.Before(soonest) {
		lane.backAt = soonest
	}
	lane.backAt = lane.backAt.Add(lane.comeBack())
	after := lane.backAt.Sub(now.Local)
	if after > mostDeferral || paused > mostDeferral {
		lane.backAt = now.Local.Add(mostDeferral)
		after = mostDeferral/2 + rand.N(mostDeferral/2)
	}
	after = max(after, leastDeferral).Round(leastDeferral)
	if len(d.deferred.byTime) == 0 {
		d.agenda.timer(Timer{After: 10 * time.Millisecond, what: giveBack}) // many share a call
	}
	d.deferred.byTime[after] = append(d.deferred.byTime[after], j.Delivery)
	d.drop(j)
	d.agenda.dropNewer(j)
}

// giveBack hands deferred jobs back.
func (f *deferrals) giveBack() {
	for after, jobs := range f.byTime {
		f.agenda.Deferred = append(f.agenda.Deferred, Deferred{jobs, after})
	}
	clear(f.byTime)
}

// nextLane returns the lane of a kind whose turn it is to have a job of a priority claimed, or
// nil. Lanes before a gate that is shut are parked there, so that each is looked at once.
func (k *kindQueue) nextLane(priority int) *laneQueue {
	if shutGate(k.gates) != nil {
		return nil
	}
	for i := 0; i < len(k.turns); {
		lane := k.turns[i]
		if lane.paused {
			k.turns, lane.parked = slices.Delete(k.turns, i, i+1), true // until the limits or pauses change, or a pause ends
			continue
		}
		if len(lane.jobs[priority]) == 0 {
			i++
			continue
		}
		g := shutGate(lane.gates)
		if g == nil {
			return lane
		}
		k.turns, lane.parked = slices.Delete(k.turns, i, i+1), true
		g.parked = append(g.parked, lane)
	}
	return nil
}

// pass notes that a job was taken out of its lane, whose turn it was, for the claim.
func (s *gateSet) pass(j *Job, turn int) {
	lane := j.limits.lane
	k := lane.kind
	k.inLanes--
	k.unqueue(lane)
	*j.limits = limited{served: lane.served, gates: append(slices.Clone(k.gates), lane.gates...), unanswered: true}
	lane.noteTurn(turn)
	if lane.jobs.len() > 0 {
		k.queue(lane)
	} else {
		delete(k.lanes, lane.name)
	}
	for _, g := range j.limits.gates {
		g.taken++
		g.claims++
	}
}

// leaveLane takes a job out of its lane without a turn. A lane without jobs is forgotten.
func (s *gateSet) leaveLane(j *Job) {
	lane := j.limits.lane
	j.limits.lane = nil
	lane.jobs.remove(j)
	lane.kind.inLanes--
	if lane.jobs.len() > 0 {
		return
	}
	lane.kind.unqueue(lane)
	delete(lane.kind.lanes, lane.name)
	for _, g := range lane.gates {
		g.parked = slices.DeleteFunc(g.parked, func(other *laneQueue) bool { return other == lane })
		s.unpark(g)
	}
}

// answered notes that the claim of a job was answered.
func (s *gateSet) answered(l *limited) {
	if !l.unanswered {
		return
	}
	l.unanswered = false
	for _, g := range l.gates {
		g.claims--
		s.unpark(g)
	}
}

// admitted notes that a claim has all that it needed.
func (s *gateSet) admitted(j *Job) {
	for _, g := range j.limits.gates {
		g.window = min(g.window+1, g.most())
	}
	s.answered(j.limits)
}

// leave gives the permits of a job back, as far as this worker counts them.
func (s *gateSet) leave(j *Job) {
	s.answered(j.limits)
	for _, g := range j.limits.gates {
		g.taken--
		g.full = false
		s.unpark(g)
	}
	j.limits.gates = nil
	s.cover(j)
}

// unpark has lanes that wait for a gate take turns again, if it is open. A gate that is of no
// use any more is forgotten.
func (s *gateSet) unpark(g *limitGate) {
	if !g.isOpen() {
		return
	}
	s.agenda.recheck = true
	for _, lane := range g.parked {
		lane.parked = false
		lane.kind.queue(lane)
		s.held.activate(lane.kind)
	}
	g.parked = nil
	if g.taken == 0 && g.key.Lane != "" && s.byKey[g.key] == g && !s.hasLane(g) {
		delete(s.byKey, g.key)
	}
}

// hasLane reports whether a lane has to pass a gate of its own.
func (s *gateSet) hasLane(g *limitGate) bool {
	if g.limit.Kind != "" {
		k := s.held.kinds[g.limit.Kind]
		return k != nil && k.lanes[g.key.Lane] != nil
	}
	for _, k := range s.held.kinds {
		if k.lanes[g.key.Lane] != nil {
			return true
		}
	}
	return false
}

// shut shuts a gate: until its token comes, or a permit does.
func (s *gateSet) shut(g *limitGate, after time.Duration, now Moment) {
	g.window = 1
	g.refusals++
	if g.full = g.limit.Running > 0 && after == driver.RetryInterval; !g.full {
		if gap := g.limit.Gap(); gap > 0 && gap < tokensAtOnce {
			after = max(after, tokensAtOnce)
			g.window = max(1, int((after+s.timing.lead/2)/gap)) // what comes until about the next claim is answered
		}
		g.outOfTokens, g.next = true, now.Engine.Add(after)
	}
	if s.manual {
		after = time.Millisecond // its time may pass at once, and nobody tells when
	}
	s.agenda.timer(Timer{After: after, what: reopen, gate: g, n: int64(g.refusals)})
}

// reopen opens a gate again, unless it was shut once more since.
func (s *gateSet) reopen(g *limitGate, refusals int) {
	if g.refusals == refusals {
		g.full, g.outOfTokens = false, false
		s.unpark(g)
	}
}

// timed notes how long a handler has taken, for about the last ten of its limits.
func (l *limited) timed(now Moment) {
	for _, g := range l.gates {
		g.took += (now.Local.Sub(l.began) - g.took) / 10
	}
}

// Freed notes that a permit may have become free.
func (d *Dispatcher) Freed(key driver.LimitKey) {
	if g := d.gates.byKey[key]; g != nil && g.full {
		g.full = false
		d.gates.unpark(g)
	}
}
