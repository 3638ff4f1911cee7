package worker

import "time"

// classes are tasks in the order in which they came due, apart by their priority.
type classes [3][]*task // High, Normal, Low

func classOf(t *task) int { return int(1 - t.held.Record.Priority) }

func (c *classes) add(t *task) { c[classOf(t)] = append(c[classOf(t)], t) }

func (c *classes) len() int { return len(c[0]) + len(c[1]) + len(c[2]) }

// turn is the order in which the classes are asked for what begins next, the n-th time:
// the lower ones come first now and then, so that they do not starve.
func turn(n int) [3]int {
	switch {
	case n%64 == 0:
		return [3]int{2, 1, 0}
	case n%8 == 0:
		return [3]int{1, 2, 0}
	}
	return [3]int{0, 1, 2}
}

// coming is how many of a lane's tasks of some classes are due and will be ready when a
// claim is answered: they keep places from lower classes, or with few places a class would
// begin whenever the one above it waits for a commit. A claim that takes long keeps none.
// It may cost a look at as many tasks as the lane may run. w.mu is held.
func (w *Worker) coming(l *lane, of []int) (n int) {
	if len(of) == 0 || !w.claimSince.IsZero() && time.Since(w.claimSince) > w.ahead {
		return 0
	}
	var now time.Time
	for _, class := range of {
		n += l.claiming[class]
		for i, t := range l.claimable[class] {
			if i == 0 {
				now = w.env.surely()
			}
			if n >= l.limit || t.held.Record.Due.After(now) {
				break
			}
			n++
		}
	}
	return n
}

// lookAgain has start be called when a claim has taken long, if one is under way. w.mu is
// held.
func (w *Worker) lookAgain() {
	if w.claimSince.IsZero() || w.looking {
		return
	}
	w.looking = true
	w.after(w.ahead+time.Millisecond, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.looking = false
		w.start()
	})
}
