package worker

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A job that a limit covers, or that is paused, waits unclaimed in the line of its kind and
// lane. It is claimed exactly, like a suspect, and the claim takes its places and tokens with
// it: the engine counts, and no worker has to know what others run. The lines of a kind take
// turns.
//
// A worker asks for no more than may be granted, as far as it knows: each limit, or lane
// under one, is a gate. It is shut while the worker has all places of it itself; when a claim
// was refused, until a place is announced or the token comes; and it lets only so many ask at
// a time.
//
// A line holds a bounded number of jobs, and others are handed back for a while. Else one
// lane with many jobs would fill the worker, and no other would be handed to it.

const (
	minLine   = 64   // jobs that a line holds, whatever its limits are
	maxServed = 4096 // lanes of a kind whose last turn is known
	maxLine   = 512  // and at most: a quarter of what a kind may hold, see backlog
	lineTime  = 2 * time.Second

	leastPutOff = 250 * time.Millisecond
	mostPutOff  = 5 * time.Minute

	// comeBack is the time between two jobs of a kind that were put off, at most: where a
	// handler that took long is fast again they are what there is to do. It is no shorter than
	// need be, since those that come too early cost two commits, and of a lane with 100,000
	// jobs nearly all do.
	comeBack = 2 * time.Millisecond

	// tokensAtOnce is for how long tokens are left to come, where many come, so that one
	// claim is for all of them. The rest of TokenAhead is for its commit.
	tokensAtOnce = driver.TokenAhead / 4
)

// line is what waits of one kind and lane.
type line struct {
	kind   *lane
	name   string
	tasks  classes // of each class the longest due first
	gates  []*gate // of limits PerLane; those of the kind are in lane
	paused bool
	parked bool      // it waits for a gate, and not for its turn
	served int       // when it had its last turn, as worker.begun says; 0: not lately
	slot   time.Time // for when the last was put off
}

// gate is what a worker knows of a LimitKey.
type gate struct {
	rule   *driver.StoredLimit
	place  driver.LimitKey
	taken  int // by tasks of this worker that are claimed or being claimed
	asking int // being claimed
	window int // how many may be
	full   bool
	dry    bool
	next   time.Time // when it is dry no longer
	refuse int       // counts refusals
	took   time.Duration
	parked []*line
}

// most is how many may ask at a time, at most.
func (g *gate) most() int {
	n := maxClaims
	if g.rule.Running > 0 {
		n = min(n, g.rule.Running)
	}
	if gap := g.rule.Gap(); gap > 0 {
		n = min(n, g.rule.Burst+int(min(driver.TokenAhead/gap, maxClaims)))
	}
	return n
}

func (g *gate) isOpen() bool {
	return !g.full && !g.dry && !g.rule.Pauses() && g.asking < g.window && (g.rule.Running == 0 || g.taken < g.rule.Running)
}

// shutGate returns the first that is shut, or nil.
func shutGate(gates []*gate) *gate {
	for _, g := range gates {
		if !g.isOpen() {
			return g
		}
	}
	return nil
}

// gatesOf returns the gates for limits of a lane. w.mu is held.
func (w *Worker) gatesOf(limits []*driver.StoredLimit, lane string, perLane bool) (gates []*gate) {
	for _, l := range limits {
		if l.PerLane != perLane {
			continue
		}
		p := l.Key(lane)
		g := w.gates[p]
		if g == nil {
			g = &gate{rule: l, place: p}
			g.window = g.most()
			w.gates[p] = g
		}
		gates = append(gates, g)
	}
	return gates
}

// isCovered reports whether a limit or a pause is for a job. w.mu is held.
func (w *Worker) isCovered(h *driver.Delivery) bool {
	limits, paused := w.rules.Covering(h.Record.Kind, h.Record.Lane)
	return len(limits) > 0 || paused
}

// line returns the line of a job. w.mu is held.
func (w *Worker) line(h *driver.Delivery) *line {
	l, name := w.lanes[h.Record.Kind], h.Record.Lane
	ln := l.lines[name]
	if ln == nil {
		limits, paused := w.rules.Covering(l.kind, name)
		ln = &line{kind: l, name: name, gates: w.gatesOf(limits, name, true), paused: paused, served: l.served[name]}
		if l.lines == nil {
			l.lines = map[string]*line{}
		}
		l.lines[name] = ln
		l.queue(ln)
	}
	return ln
}

// queue has a line wait for its turn, which comes the sooner the longer ago its last was.
func (l *lane) queue(ln *line) {
	i, _ := slices.BinarySearchFunc(l.turns, ln.served, func(other *line, served int) int {
		if other.served <= served {
			return -1
		}
		return 1
	})
	l.turns = slices.Insert(l.turns, i, ln)
}

// noteTurn notes that a line has its turn. It is known also when nothing waits there any
// more: else a lane whose jobs come one by one would be the first each time. Of what was
// served before all that wait now nothing need be known. w.mu is held.
func (w *Worker) noteTurn(ln *line) {
	l := ln.kind
	ln.served = w.begun + 1
	if len(l.served) >= maxServed {
		least := ln.served
		for _, other := range l.turns {
			least = min(least, other.served)
		}
		maps.DeleteFunc(l.served, func(_ string, served int) bool { return served < least })
	}
	if l.served == nil || len(l.served) >= maxServed {
		l.served = map[string]int{}
	}
	l.served[ln.name] = ln.served
}

// missTurn takes back the turn of a task that was refused: it is the next again. w.mu is held.
func (w *Worker) missTurn(t *task) {
	l, name := w.lanes[t.held.Record.Kind], t.held.Record.Lane
	if l.served[name] <= t.served {
		return
	}
	l.served[name] = t.served
	if ln := l.lines[name]; ln != nil {
		ln.served = t.served
		if i := slices.Index(l.turns, ln); i >= 0 {
			l.turns = slices.Delete(l.turns, i, i+1)
			l.queue(ln)
		}
	}
}

// join has a task wait in its line, which hands back its last if it is too long: but where the
// clock is set by hand, since for how long it is put off passes by real time. w.mu is held.
func (w *Worker) join(t *task) {
	w.set(t, waiting)
	ln := w.line(t.held)
	class := &ln.tasks[classOf(t)]
	i, _ := slices.BinarySearchFunc(*class, t, func(a, b *task) int { return a.held.Record.Due.Compare(b.held.Record.Due) })
	*class = slices.Insert(*class, i, t)
	t.line = ln
	ln.kind.lined++
	if ln.name != "" && !ln.kind.paused && !w.env.Manual && ln.tasks.len() > ln.bound() {
		w.putOff(ln)
	}
	w.activate(ln.kind)
}

// bound is how many a line holds: what it gets on in some seconds, and some for each place.
func (ln *line) bound() int {
	n := minLine
	for _, gates := range [][]*gate{ln.kind.gates, ln.gates} {
		for _, g := range gates {
			n = max(n, min(4*g.rule.Running, maxLine))
		}
	}
	if pace := ln.pace(); pace > 0 && !ln.paused {
		n = max(n, int(min(lineTime/pace, maxLine)))
	}
	return n
}

// pace is about how long it takes a line to get one job on. It is too low if others have
// places, too: then a job that was put off comes too early, and is put off again.
func (ln *line) pace() time.Duration { return max(paceOf(ln.kind.gates), paceOf(ln.gates)) }

func paceOf(gates []*gate) (d time.Duration) {
	for _, g := range gates {
		d = max(d, g.rule.Gap())
		if g.rule.Running > 0 {
			d = max(d, g.took/time.Duration(g.rule.Running))
		}
	}
	return d
}

// comeBack is the time between two jobs of a line that were put off.
func (ln *line) comeBack() time.Duration {
	n := time.Duration(len(ln.kind.lines))
	return min(max(paceOf(ln.kind.gates)*n, paceOf(ln.gates)), comeBack*n)
}

// putOff hands the last of a line back, for about as long as those before it take. w.mu is
// held.
func (w *Worker) putOff(ln *line) {
	class := 2
	for len(ln.tasks[class]) == 0 {
		class--
	}
	t := ln.tasks[class][len(ln.tasks[class])-1]
	ln.tasks[class] = ln.tasks[class][:len(ln.tasks[class])-1]
	ln.kind.lined--
	t.line = nil
	now := time.Now()
	if soonest := now.Add(min(ln.pace(), mostPutOff) * time.Duration(ln.bound())); ln.slot.Before(soonest) {
		ln.slot = soonest
	}
	ln.slot = ln.slot.Add(ln.comeBack())
	after := ln.slot.Sub(now)
	if after > mostPutOff || ln.paused {
		ln.slot = now.Add(mostPutOff)
		after = mostPutOff/2 + rand.N(mostPutOff/2)
	}
	after = max(after, leastPutOff).Round(leastPutOff)
	if len(w.back) == 0 {
		w.after(10*time.Millisecond, w.giveBackLate) // many share a call
	}
	w.back[after] = append(w.back[after], t.held)
	w.drop(t)
}

// giveBackLate hands back what was put off, unless drain has.
func (w *Worker) giveBackLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.giveBackPutOff()
}

// giveBackPutOff hands back what was put off. w.mu is held.
func (w *Worker) giveBackPutOff() {
	for after, held := range w.back {
		w.side.Go(func() { w.release(held, after) })
	}
	clear(w.back)
}

// turnOf returns the line of a kind whose turn it is to have a job of a class claimed, or
// nil. Lines before a gate that is shut are parked there, so that each is looked at once.
// w.mu is held.
func (l *lane) turnOf(class int) *line {
	if l.lined == 0 || shutGate(l.gates) != nil {
		return nil
	}
	for i := 0; i < len(l.turns); {
		ln := l.turns[i]
		if ln.paused {
			l.turns, ln.parked = slices.Delete(l.turns, i, i+1), true // until the rules change
			continue
		}
		if len(ln.tasks[class]) == 0 {
			i++
			continue
		}
		g := shutGate(ln.gates)
		if g == nil {
			return ln
		}
		l.turns, ln.parked = slices.Delete(l.turns, i, i+1), true
		g.parked = append(g.parked, ln)
	}
	return nil
}

// pass takes a task out of its line, whose turn it was, for the claim. w.mu is held.
func (w *Worker) pass(t *task) {
	ln := t.line
	l := ln.kind
	t.line = nil
	l.lined--
	i := slices.Index(l.turns, ln)
	l.turns = slices.Delete(l.turns, i, i+1)
	t.served = ln.served
	w.noteTurn(ln)
	if ln.tasks.len() > 0 {
		l.queue(ln)
	} else {
		delete(l.lines, ln.name)
	}
	t.gates = append(slices.Clone(l.gates), ln.gates...)
	t.asking = true
	for _, g := range t.gates {
		g.taken++
		g.asking++
	}
}

// asked notes that a claim was answered. w.mu is held.
func (w *Worker) asked(t *task) {
	if !t.asking {
		return
	}
	t.asking = false
	for _, g := range t.gates {
		g.asking--
		w.unpark(g)
	}
}

// leave gives the places of a task back, as far as this worker counts them. w.mu is held.
func (w *Worker) leave(t *task) {
	w.asked(t)
	for _, g := range t.gates {
		g.taken--
		g.full = false
		w.unpark(g)
	}
	t.gates = nil
}

// unpark has those that wait for a gate take turns again, if it is open. One that is of no
// use any more is forgotten. w.mu is held.
func (w *Worker) unpark(g *gate) {
	if !g.isOpen() {
		return
	}
	for _, ln := range g.parked {
		ln.parked = false
		ln.kind.queue(ln)
		w.activate(ln.kind)
	}
	g.parked = nil
	if g.taken == 0 && g.place.Lane != "" && w.gates[g.place] == g && !w.hasLine(g) {
		delete(w.gates, g.place)
	}
}

// hasLine reports whether a line has to pass a gate of its lane. w.mu is held.
func (w *Worker) hasLine(g *gate) bool {
	if g.rule.Kind != "" {
		l := w.lanes[g.rule.Kind]
		return l != nil && l.lines[g.place.Lane] != nil
	}
	for _, l := range w.lanes {
		if l.lines[g.place.Lane] != nil {
			return true
		}
	}
	return false
}

// limited has a task wait whose claim was refused by a limit or a pause. w.mu is held.
func (w *Worker) limited(t *task, v driver.ClaimResult) {
	w.missTurn(t)
	gates := t.gates
	w.leave(t)
	known := false
	for _, g := range gates {
		if v.Limit != 0 && g.rule.ID == v.Limit {
			w.gates[g.place] = g // leave has forgotten it, if nothing else of its lane waits here
			w.refused(g, v.After)
			known = true
		}
	}
	if known && t.crashes == 0 {
		w.await(t)
		return
	}
	if t.crashes == 0 {
		w.askRules() // they are newer than those that are known here
	}
	t.held.Exact = true
	w.set(t, fetched)
	after := min(max(v.After, time.Millisecond), driver.RetryInterval) // the rules may change
	if w.env.Manual {
		after = time.Millisecond // as for a gate, in refused
	}
	w.schedule(t, after)
}

// refused shuts a gate: until its token comes, or a place does. w.mu is held.
func (w *Worker) refused(g *gate, after time.Duration) {
	g.window = 1
	g.refuse++
	n := g.refuse
	if g.full = g.rule.Running > 0 && after == driver.RetryInterval; !g.full {
		if gap := g.rule.Gap(); gap > 0 && gap < tokensAtOnce {
			after = max(after, tokensAtOnce)
			g.window = max(1, int((after+w.ahead/2)/gap)) // what comes until about the next claim is answered
		}
		g.dry, g.next = true, w.env.Now().Add(after)
	}
	if w.env.Manual {
		after = time.Millisecond // its time may pass at once, and nobody tells when
	}
	w.after(after, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if g.refuse == n && !w.draining {
			g.full, g.dry = false, false
			w.unpark(g)
			w.start()
		}
	})
}

// granted notes that a claim has all that it needed. w.mu is held.
func (w *Worker) granted(t *task) {
	for _, g := range t.gates {
		g.window = min(g.window+1, g.most())
	}
	w.asked(t)
}

// askRules has the rules read at once.
func (w *Worker) askRules() {
	select {
	case w.asks <- struct{}{}:
	default:
	}
}

// watchRules reads the rules until ctx ends.
func (w *Worker) watchRules(ctx context.Context) {
	t := time.NewTicker(driver.RetryInterval)
	defer t.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, max(driver.RetryInterval, w.env.Lease/4))
		r, err := w.env.Engine.FlowControl(try)
		cancel()
		if err == nil {
			w.obey(r)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-w.asks:
		}
	}
}

// obey has new rules hold for jobs that wait. Jobs that are claimed and have not begun are handed
// back, if the rules are for them: they may wait for long yet.
func (w *Worker) obey(r *driver.FlowControl) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Revision() == w.rules.Revision() || w.draining {
		return
	}
	w.rules = r
	w.regate()
	var back []*driver.Delivery
	var again []*task
	for _, l := range w.lanes {
		limits, paused := r.Covering(l.kind, "")
		l.gates, l.paused = w.gatesOf(limits, "", false), paused
		l.lines, l.turns, l.lined = nil, nil, 0
		w.mind(l)
	}
	for _, l := range w.activeLanes() {
		l.last = classes{}
		for class, tasks := range l.ready {
			l.ready[class] = slices.DeleteFunc(tasks, func(t *task) bool { return t.gates == nil && w.isCovered(t.held) })
		}
	}
	for _, t := range w.tasks {
		switch covered := w.isCovered(t.held); {
		case t.phase == waiting && t.crashes == 0:
			again = append(again, t)
		case (t.phase == claimed || t.phase == ready) && t.gates == nil && !t.reserved && covered:
			back = append(back, t.held)
			w.drop(t)
		}
	}
	slices.SortFunc(again, func(a, b *task) int { return a.held.Record.Due.Compare(b.held.Record.Due) })
	for _, t := range again {
		t.line = nil
		w.await(t)
	}
	w.giveBack(back)
	w.start()
}

// regate keeps the gates of limits that are still there. w.mu is held.
func (w *Worker) regate() {
	byID := map[int64]*driver.StoredLimit{}
	for _, l := range w.rules.Limits() {
		byID[l.ID] = l
	}
	for p, g := range w.gates {
		g.parked = nil // there are new lines
		if g.rule = byID[p.Limit]; g.rule == nil {
			g.rule = &driver.StoredLimit{}
			delete(w.gates, p)
			continue
		}
		g.refuse++
		g.full, g.dry, g.window = false, false, g.most()
	}
}

// tell is called by the engine.
func (w *Worker) tell(n driver.Notice) {
	if n.FlowControl {
		w.askRules()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range n.Freed {
		if g := w.gates[p]; g != nil && g.full {
			g.full = false
			w.unpark(g)
		}
	}
	for _, ref := range n.Canceled {
		if t := w.tasks[ref]; t != nil && !t.canceled {
			w.endEarly(t)
		}
	}
	w.start()
}

// endEarly ends the context of a handler, or a job that is claimed and has not begun. w.mu
// is held.
func (w *Worker) endEarly(t *task) {
	switch {
	case t.cancel != nil:
		t.canceled = true
		t.cancel(driver.ErrCanceled)
	case t.phase == claimed || t.phase == ready:
		t.canceled = true
		class := &w.queuesOf(t).ready[classOf(t)]
		*class = slices.DeleteFunc(*class, func(other *task) bool { return other == t })
		w.vacate(t)
		w.set(t, ending)
		go func() {
			out := driver.Completion{Delivery: t.held, End: driver.Done}
			defer func() { w.ends.Put(&ended{task: t, out: out, early: true}) }()
			t.began = w.env.Now()
			w.env.Times.Follow(&out, t.began)
		}()
	}
}

// wasCanceled reports whether the error of a task's handler means that it was canceled.
func (w *Worker) wasCanceled(t *task) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.failed = t.canceled
	return t.canceled
}

// timed notes how long a handler has taken, for about the last ten of its limits. w.mu is
// held.
func (t *task) timed(now time.Time) {
	for _, g := range t.gates {
		g.took += (now.Sub(t.began) - g.took) / 10
	}
}

// limitStats returns what waits, by the limit that it waits for. Each job counts once. w.mu
// is held.
func (w *Worker) limitStats() (waiting int64, stats []LimitStats) {
	at := map[string]int{"": 0}
	stats = append(stats, LimitStats{})
	for _, l := range w.rules.Limits() {
		at[l.Name] = len(stats)
		stats = append(stats, LimitStats{Name: l.Name})
	}
	for _, l := range w.lanes {
		for _, ln := range l.lines {
			n := int64(ln.tasks.len())
			waiting += n
			g := shutGate(l.gates)
			if g == nil {
				g = shutGate(ln.gates)
			}
			switch i, known := at[nameOf(g)]; {
			case ln.paused:
				stats[0].Waiting += n
			case g == nil || !known:
			default:
				stats[i].Waiting += n
				if g.dry && (stats[i].Next.IsZero() || g.next.Before(stats[i].Next)) {
					stats[i].Next = g.next
				}
			}
		}
	}
	if stats[0].Waiting == 0 {
		stats = stats[1:]
	}
	return waiting, stats
}

func nameOf(g *gate) string {
	if g == nil {
		return ""
	}
	return g.rule.Name
}
