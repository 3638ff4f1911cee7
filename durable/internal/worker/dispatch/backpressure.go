package dispatch

import (
	"slices"
)

// A worker holds a bounded number of jobs and bytes. Up to three quarters of that any kind
// may take. From then on a kind that has its part of the last quarter is shut, so that no
// kind, however many of its jobs are overdue, keeps the jobs of another out. A job that is on its way
// when its kind is shut is let in.
//
// A kind with a limit of its own is shut earlier: when more of its jobs are due than begin
// soon. It is opened again while there is still work for a while. A kind that is paused is
// shut until it is resumed.

const (
	maxHeld      = 1 << 16  // jobs that a worker holds, unless its concurrency is higher still
	maxHeldBytes = 64 << 20 // of their payloads
)

// Full reports whether no job can be added now.
func (d *Dispatcher) Full() bool {
	return len(d.held.jobs) >= d.held.most || d.held.bytes >= maxHeldBytes
}

// maxUnclaimed is how many jobs of a kind that has a limit may be due and not claimed.
func (k *kindQueue) maxUnclaimed() int { return 1024 + 4*k.limit }

func (k *kindQueue) unclaimed() int {
	return k.claimable.len() + k.last.len() + len(k.suspects) + k.inLanes
}

// activate notes that a kind has something in a queue, so that the choice of the next job looks at
// no other kinds.
func (v *inventory) activate(k *kindQueue) {
	if !k.active {
		k.active, v.active = true, append(v.active, k)
	}
	v.updateKind(k)
}

// activeKinds returns the kinds that have something in a queue, or are being claimed.
func (v *inventory) activeKinds() []*kindQueue {
	v.active = slices.DeleteFunc(v.active, func(k *kindQueue) bool {
		k.active = k.unclaimed()+k.ready.len() > 0 || k.claims != [3]int{}
		return !k.active
	})
	return v.active
}

// account counts a job that comes (1) or goes (-1).
func (v *inventory) account(j *Job, n int) {
	bytes := n * len(j.Delivery.Record.Payload)
	v.bytes += bytes
	k := j.kind
	k.held, k.bytes = k.held+n, k.bytes+bytes
	switch was := v.crowded; {
	case len(v.jobs) >= v.most/4*3 || v.bytes >= maxHeldBytes/4*3:
		v.crowded = true
	case len(v.jobs) < v.most/2 && v.bytes < maxHeldBytes/2:
		if v.crowded = false; was {
			for _, other := range v.kinds {
				v.updateKind(other)
			}
		}
	}
	v.updateKind(k)
}

// updateKind opens a kind, or shuts it, when it is due for that.
func (v *inventory) updateKind(k *kindQueue) {
	part := 1 // of each bound; half of it for one that is shut, so that it is not opened for each job
	if k.shut {
		part = 2
	}
	divisor := 4 * len(v.kinds) * part
	shut := k.paused || (k.limited || len(k.gates) > 0) && k.unclaimed() >= k.maxUnclaimed()/part ||
		v.crowded && (k.held >= max(1, v.most/divisor) || k.bytes >= max(1, maxHeldBytes/divisor))
	if shut != k.shut {
		k.shut = shut
		v.agenda.Kinds = append(v.agenda.Kinds, KindChange{k.kind, !shut})
	}
}
