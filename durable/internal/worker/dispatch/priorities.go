package dispatch

import (
	"slices"
	"time"
)

func (p *priorities) add(j *Job) { p[j.priority] = append(p[j.priority], j) }

func (p *priorities) addFirst(j *Job) { p[j.priority] = slices.Insert(p[j.priority], 0, j) }

func (p *priorities) remove(j *Job) {
	p[j.priority] = slices.DeleteFunc(p[j.priority], func(other *Job) bool { return other == j })
}

func (p *priorities) len() int { return len(p[0]) + len(p[1]) + len(p[2]) }

// shift drops the first n, and the array with them when nothing is left.
func shift(s []*Job, n int) []*Job {
	clear(s[:n])
	if n == len(s) {
		return nil
	}
	return s[n:]
}

// priorityOrder is the order in which the priorities are looked at for what begins next, the n-th
// time: the lower ones come first now and then, so that they do not starve.
func priorityOrder(n int) [3]int {
	switch {
	case n%64 == 0:
		return [3]int{2, 1, 0}
	case n%8 == 0:
		return [3]int{1, 2, 0}
	}
	return [3]int{0, 1, 2}
}

// coming is how many jobs of a kind, of some priorities, are due and will be ready when a claim is
// answered: they keep slots from lower priorities, or with few slots a priority would begin
// whenever the one above it waits for a commit. A claim that takes long keeps none. The cost may be
// a look at as many jobs as the kind may run.
func (t *timing) coming(k *kindQueue, of []int, now Moment) (n int) {
	if len(of) == 0 || !t.claimSince.IsZero() && now.Local.Sub(t.claimSince) > t.lead {
		return 0
	}
	sure := now.Engine.Add(-now.Off) // the time that the engine's clock has surely reached
	for _, priority := range of {
		n += k.claims[priority]
		for _, j := range k.claimable[priority] {
			if n >= k.limit || j.Delivery.Record.Due.After(sure) {
				break
			}
			n++
		}
	}
	return n
}

// watchClaim sets a Timer, after which Next looks again: the claim that is under way has taken long by
// then.
func (t *timing) watchClaim() {
	t.lookAgain = true
	t.agenda.timer(Timer{After: t.lead + time.Millisecond, what: slowClaim})
}
