package main

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// locals are the values that the workers of a Pool have. Each is used by one function at
// a time and removed once.
type locals struct {
	violations    *violations
	stays         *pool.Local[*local]
	changes       atomic.Pointer[pool.Local[*local]] // closed now and then
	made, removed atomic.Int64
}

// local is a value. It is changed without a lock on purpose, but for what finds a
// mistake.
type local struct {
	users atomic.Int32
	gone  atomic.Bool
	uses  int
}

func newLocals(p *pool.Pool, v *violations) *locals {
	l := &locals{violations: v}
	l.stays = pool.NewLocal(p, l.init, l.remove)
	l.changes.Store(pool.NewLocal(p, l.init, l.remove))
	return l
}

func (l *locals) init(*pool.Worker) *local {
	l.made.Add(1)
	return new(local)
}

func (l *locals) remove(v *local) {
	if users := v.users.Load(); users != 0 || v.gone.Swap(true) {
		l.violations.add("Local: a value is removed twice, or with %d users", users)
	}
	l.removed.Add(1)
}

// scheduleOn has the Pool schedule a task on the wheel, which uses values first.
func (p *keptPool) scheduleOn(w *timingwheel.TimingWheel, d time.Duration, t *task) (timingwheel.Timeout, error) {
	if rand.IntN(1000) == 0 {
		p.locals.changes.Swap(pool.NewLocal(p.Pool, p.locals.init, p.locals.remove)).Close()
	}
	return p.Schedule(w, d, func(k *pool.Worker) {
		p.locals.use(k)
		t.run()
	})
}

func (l *locals) use(k *pool.Worker) {
	v := *l.stays.Get(k)
	if v.users.Add(1) != 1 || v.gone.Load() {
		l.violations.add("Local: a value is used by two, or after it was removed")
	}
	v.uses++
	v.users.Add(-1)
	switch rand.IntN(50) {
	case 0:
		l.stays.Remove(k)
	case 1:
		k.Clear()
	}
	func() {
		defer func() { recover() }() // it may have been closed just now
		(*l.changes.Load().Get(k)).uses++
	}()
}

// settle closes the account, once nothing runs any more and the Pool is closed.
func (l *locals) settle() {
	if made, removed := l.made.Load(), l.removed.Load(); made != removed {
		l.violations.add("Local: %d values were made, and %d removed", made, removed)
	}
}
