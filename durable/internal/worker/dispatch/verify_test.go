package dispatch

import (
	"fmt"
	"slices"
)

// verify returns what is inconsistent in a Dispatcher, or nil: each figure that it keeps is counted
// anew, and each job is in the queue of its phase and in no other.
func (d *Dispatcher) verify() error {
	where := map[*Job]string{}
	note := func(in string, jobs ...*Job) error {
		for _, j := range jobs {
			if was, ok := where[j]; ok {
				return fmt.Errorf("%s is in %s and in %s", j.Delivery.Ref, was, in)
			}
			if d.held.jobs[j.Delivery.Ref] != j {
				return fmt.Errorf("%s is in %s, and gone", j.Delivery.Ref, in)
			}
			where[j] = in
		}
		return nil
	}
	if err := note("exact", d.slots.exact...); err != nil {
		return err
	}
	for _, k := range append(slices.Collect(values(d.held.kinds)), d.held.shared) {
		if err := d.verifyKind(k, note); err != nil {
			return err
		}
	}
	var counts [blocked + 1]int
	bytes, reserved := 0, 0
	gates := map[*limitGate][2]int{}
	for _, j := range d.held.jobs {
		counts[j.phase]++
		bytes += len(j.Delivery.Record.Payload)
		want := map[phase]string{ready: "ready"}[j.phase]
		switch {
		case j.phase == claimable && j.reserved:
			want = "exact"
		case j.phase == claimable:
			want = "claimable"
		case j.phase == queued && j.limits != nil && j.limits.lane != nil:
			want = "lane"
		case j.phase == queued && j.crashes > 0:
			want = "suspects"
		case j.phase == queued:
			want = "last"
		}
		if where[j] != want {
			return fmt.Errorf("%s in phase %d is in %q, not in %q", j.Delivery.Ref, j.phase, where[j], want)
		}
		if j.reserved {
			reserved++
		}
		if j.limits != nil {
			for _, g := range j.limits.gates {
				n := gates[g]
				n[0]++
				if j.limits.unanswered {
					n[1]++
				}
				gates[g] = n
			}
		}
	}
	if counts != d.held.counts || bytes != d.held.bytes || reserved != d.slots.reserved {
		return fmt.Errorf("counts %v, not %v; %d bytes, not %d; %d reserved, not %d", d.held.counts, counts, d.held.bytes, bytes, d.slots.reserved, reserved)
	}
	if counts[running]+reserved > d.c.Concurrency {
		return fmt.Errorf("%d running, and %d slots reserved, of %d", counts[running], reserved, d.c.Concurrency)
	}
	for key, g := range d.gates.byKey {
		if n := gates[g]; g.taken != n[0] || g.claims != n[1] {
			return fmt.Errorf("gate %v: %d taken and %d being claimed, not %v", key, g.taken, g.claims, n)
		}
	}
	return nil
}

func values(m map[string]*kindQueue) func(func(*kindQueue) bool) {
	return func(yield func(*kindQueue) bool) {
		for _, k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// verifyKind is verify of one kind.
func (d *Dispatcher) verifyKind(k *kindQueue, note func(string, ...*Job) error) error {
	inLanes := 0
	for name, lane := range k.lanes {
		if lane.jobs.len() == 0 || lane.name != name {
			return fmt.Errorf("kind %s: lane %q has no jobs", k.kind, name)
		}
		inTurns, parked := slices.Contains(k.turns, lane), lane.paused && lane.parked
		for _, g := range d.gates.byKey {
			parked = parked || slices.Contains(g.parked, lane)
		}
		if inTurns == parked || parked != lane.parked {
			return fmt.Errorf("kind %s: lane %q: in turns %t, parked %t and %t", k.kind, name, inTurns, parked, lane.parked)
		}
		for _, jobs := range lane.jobs {
			inLanes += len(jobs)
			if err := note("lane", jobs...); err != nil {
				return err
			}
		}
	}
	if inLanes != k.inLanes {
		return fmt.Errorf("kind %s: %d in lanes, not %d", k.kind, k.inLanes, inLanes)
	}
	if k.queues == k {
		for in, p := range map[string]priorities{"claimable": k.claimable, "ready": k.ready, "last": k.last, "suspects": {k.suspects}} {
			for _, jobs := range p {
				if err := note(in, jobs...); err != nil {
					return err
				}
			}
		}
	}
	running, held, bytes := 0, 0, 0
	var claims [3]int
	for _, j := range d.held.jobs {
		if j.kind.queues == k {
			if j.phase == running_ || j.reserved {
				running++
			}
			if j.counted {
				claims[j.priority]++
			}
		}
		if j.Delivery.Record.Kind == k.kind {
			held, bytes = held+1, bytes+len(j.Delivery.Record.Payload)
		}
	}
	if k.queues == k && (running != k.running || claims != k.claims) {
		return fmt.Errorf("kind %q: %d running, not %d; claiming %v, not %v", k.kind, k.running, running, k.claims, claims)
	}
	if k.running > k.limit {
		return fmt.Errorf("kind %q: %d running of %d", k.kind, k.running, k.limit)
	}
	if k.kind != "" && (held != k.held || bytes != k.bytes) {
		return fmt.Errorf("kind %q: %d held, not %d; %d bytes, not %d", k.kind, k.held, held, k.bytes, bytes)
	}
	if !k.active && (k.unclaimed()+k.ready.len() > 0 || k.claims != [3]int{}) {
		return fmt.Errorf("kind %q has something in a queue, and is not active", k.kind)
	}
	return nil
}

const running_ = running // beside a variable of the name
