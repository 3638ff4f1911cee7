package dispatch

import (
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// SetFlowControl replaces the stored limits and pauses. The new ones hold for jobs that wait. It hands
// back each claimed job that the new ones cover, unless it has permits or a slot: such a job may
// wait for long.
func (d *Dispatcher) SetFlowControl(f *driver.FlowControl, now Moment) {
	// A store that went back gives a revision a second time, to other limits.
	same := f == d.gates.flow || f.Revision() == d.gates.flow.Revision() && f.Encode() == d.gates.flow.Encode()
	if same || d.draining {
		return
	}
	d.gates.flow = f
	d.applyFlowControl(now)
}

// applyFlowControl applies the limits, and the pauses that are in force.
func (d *Dispatcher) applyFlowControl(now Moment) {
	d.gates.look(now)
	for _, jobs := range d.deferred.byTime { // because of the limits that were there
		d.agenda.Dropped = append(d.agenda.Dropped, jobs...)
	}
	clear(d.deferred.byTime)
	d.gates.regate()
	for _, k := range d.held.kinds {
		limits, paused := d.gates.covering(k.kind, "")
		k.gates, k.paused = d.gates.gatesOf(limits, "", false), paused
		k.lanes, k.turns, k.inLanes = nil, nil, 0
		d.held.updateKind(k)
	}
	var wait []*Job
	for _, j := range d.held.jobs {
		d.gates.cover(j)
		switch {
		case j.phase == queued && j.crashes == 0:
			wait = append(wait, j)
		case (j.phase == claimed || j.phase == ready) && !j.reserved && j.limits != nil && len(j.limits.gates) == 0:
			if j.phase == ready {
				d.held.unready(j)
			}
			d.dropBack(j)
		}
	}
	for _, k := range d.held.activeKinds() {
		k.last = priorities{}
	}
	slices.SortFunc(wait, func(a, b *Job) int { return a.Delivery.Record.Due.Compare(b.Delivery.Record.Due) })
	for _, j := range wait {
		d.await(j, now)
	}
	d.agenda.recheck = true
}

// regate keeps the gates of limits that are still stored, opens them, and deletes the others.
func (s *gateSet) regate() {
	byID := map[int64]*driver.StoredLimit{}
	for _, l := range s.flow.Limits() {
		byID[l.ID] = l
	}
	for key, g := range s.byKey {
		g.parked = nil // there are new lanes
		if g.limit = byID[key.Limit]; g.limit == nil {
			g.limit = &driver.StoredLimit{}
			delete(s.byKey, key)
			continue
		}
		g.refusals++
		g.full, g.outOfTokens, g.window = false, false, g.most()
	}
}

// Pauses returns the pauses that are in force. The slice must not be changed.
func (d *Dispatcher) Pauses() []driver.Pause { return d.gates.pauses }

// LimitStats counts the jobs that wait for a limit.
type LimitStats struct {
	Name    string    // "": for a pause to end
	Waiting int64     // jobs that are due
	Next    time.Time // when the next token comes that one waits for; zero: none does
}

// LimitStats returns what waits, by the limit that it waits for. Each job counts once.
func (d *Dispatcher) LimitStats() (waiting int64, stats []LimitStats) {
	at := map[string]int{"": 0}
	stats = append(stats, LimitStats{})
	for _, l := range d.gates.flow.Limits() {
		at[l.Name] = len(stats)
		stats = append(stats, LimitStats{Name: l.Name})
	}
	for _, k := range d.held.kinds {
		for _, lane := range k.lanes {
			n := int64(lane.jobs.len())
			waiting += n
			g := shutGate(k.gates)
			if g == nil {
				g = shutGate(lane.gates)
			}
			switch i, known := at[nameOf(g)]; {
			case lane.paused:
				stats[0].Waiting += n
			case g == nil || !known:
			default:
				stats[i].Waiting += n
				if g.outOfTokens && (stats[i].Next.IsZero() || g.next.Before(stats[i].Next)) {
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

func nameOf(g *limitGate) string {
	if g == nil {
		return ""
	}
	return g.limit.Name
}
