package pool

import (
	"sync"

	"github.com/tickwheel/tickwheel/internal/nocopy"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// Worker is what one worker of a [Pool] has for itself: the values of each [Local] of the
// Pool. A function that [Pool.Schedule] has scheduled gets one, and has it alone until it
// returns. So neither the values nor the methods need a lock.
//
// A Worker must not be copied, nor kept after the function has returned, and no other goroutine
// may use it: another function has it by then.
//
// A Pool makes a Worker when more of these functions run at once than ever before, and
// keeps it. The Worker that was free last is the next.
type Worker struct {
	_ nocopy.Mark

	id     int
	values []value // by the index of the Local; nil: none
	owner  *workers

	// Guarded by owner.mu.
	place  int     // in owner.busy while it is there
	closed []*seat // of the Locals that were closed while the Worker was busy
}

// strange is the ID of a Worker that is none of the Pool's.
const strange = -1

// ID returns the number of the worker: at least 0, and less than the Pool has workers. It
// is -1 if the function runs elsewhere and has a Worker of its own, see [Pool.Schedule].
func (k *Worker) ID() int { return k.id }

// Len returns how many values the worker has. O(Locals of the Pool).
func (k *Worker) Len() (n int) {
	for _, v := range k.values {
		if v != nil {
			n++
		}
	}
	return n
}

// Clear removes all values of the worker. If a Local's remove function panics or ends the
// goroutine, the other values are removed all the same. O(Locals of the Pool).
func (k *Worker) Clear() { removeAll(k.takeAll(nil)) }

// value is the value that a Worker has of a Local.
type value interface {
	Remove() // calls the Local's remove function
}

// get returns the value at an index, or nil.
func (k *Worker) get(index int) value {
	if index >= len(k.values) {
		return nil
	}
	return k.values[index]
}

func (k *Worker) set(index int, v value) {
	for len(k.values) <= index {
		k.values = append(k.values, nil)
	}
	k.values[index] = v
}

// take takes a value out and appends it to taken. Only what was taken out is removed: so
// each value is removed once.
func (k *Worker) take(index int, taken []value) []value {
	v := k.get(index)
	if v == nil {
		return taken
	}
	k.values[index] = nil
	return append(taken, v)
}

func (k *Worker) takeAll(taken []value) []value {
	for i := range k.values {
		taken = k.take(i, taken)
	}
	return taken
}

// removeAll removes values that were taken out. It calls functions of a user's, so that
// no lock may be held. If one of them does not return, the others are called while the
// stack unwinds.
func removeAll(values []value) { run.All(values, value.Remove, true) }

// seat is a Local's place in each Worker: an index.
//
// The invariant: at an index there is no value but that of the seat that has it. So an
// index is free again only when no Worker is busy any more that was so when the seat was
// closed. The price: while one function runs, each Local that is opened and closed takes
// another index.
type seat struct {
	index int
	busy  int // once it is closed: Workers that may have a value of it; guarded by workers.mu
}

// workers are the Workers of a Pool, those that functions have which run elsewhere
// included.
//
// A Worker is busy while a function has it, and free otherwise. The values of one that is
// busy belong to the goroutine of the function. Those of one that is free are guarded by
// mu. So the lock orders what one function does with them before what the next one does.
//
// Rejected: one Worker for the life of a goroutine of the Pool. It would save the lock,
// but functions that do not use Workers would pay for them, and the values of a closed
// Local would wait for a goroutine that may live for ever.
type workers struct {
	mu     sync.Mutex // a leaf: no other lock is taken under it
	made   int        // of the Pool's
	free   []*Worker  // the one that was free last is the last
	busy   []*Worker  // in no order
	seats  int        // indices that were ever given out
	vacant []int      // of them, those that nobody has
}

// enter returns a Worker that was free, or a new one. A function that runs elsewhere gets a
// new one always. The others are no more at once than the Pool has goroutines, so its bound
// bounds their Workers.
func (ws *workers) enter(pooled bool) (k *Worker) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch last := len(ws.free) - 1; {
	case !pooled:
		k = &Worker{id: strange, owner: ws}
	case last < 0:
		k = &Worker{id: ws.made, owner: ws}
		ws.made++
	default:
		k = ws.free[last]
		ws.free[last] = nil
		ws.free = ws.free[:last]
	}
	k.place = len(ws.busy)
	ws.busy = append(ws.busy, k)
	return k
}

// leave gives a Worker back, and removes its values of Locals that were closed meanwhile;
// of a stranger all.
func (ws *workers) leave(k *Worker) { removeAll(ws.giveBack(k)) }

func (ws *workers) giveBack(k *Worker) (taken []value) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	last := len(ws.busy) - 1
	ws.busy[k.place] = ws.busy[last]
	ws.busy[k.place].place = k.place
	ws.busy[last] = nil
	ws.busy = ws.busy[:last]
	if k.id == strange {
		taken = k.takeAll(nil)
	} else {
		ws.free = append(ws.free, k)
	}
	for _, s := range k.closed {
		taken = k.take(s.index, taken)
		if s.busy--; s.busy == 0 {
			ws.vacant = append(ws.vacant, s.index)
		}
	}
	k.closed = nil
	return taken
}

// open gives out an index.
func (ws *workers) open() seat {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.vacant) == 0 {
		ws.vacant = append(ws.vacant, ws.seats)
		ws.seats++
	}
	last := len(ws.vacant) - 1
	index := ws.vacant[last]
	ws.vacant = ws.vacant[:last]
	return seat{index: index}
}

// close takes back an index, and returns the values there of all that are free. The
// others see to theirs in giveBack. A seat must not be closed twice.
func (ws *workers) close(s *seat) (taken []value) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, k := range ws.free {
		taken = k.take(s.index, taken)
	}
	for _, k := range ws.busy {
		k.closed = append(k.closed, s)
	}
	if s.busy = len(ws.busy); s.busy == 0 {
		ws.vacant = append(ws.vacant, s.index)
	}
	return taken
}

// clear removes the values of all that are free.
func (ws *workers) clear() { removeAll(ws.takeAll()) }

func (ws *workers) takeAll() (taken []value) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, k := range ws.free {
		taken = k.takeAll(taken)
	}
	return taken
}
