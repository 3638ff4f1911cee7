package main

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// keys are the keys of a Keyed.
type keys struct {
	life  *life
	keyed *timingwheel.Keyed[int]
	keys  [200]key
}

// key is one key and the task that it was last scheduled for. Its mutex is held around
// each call for the key. Lock order: key, task.
type key struct {
	mu   sync.Mutex
	task *task // guarded by mu; nil until the first use
}

// call makes one random call for a random key.
func (k *keys) call() {
	l, n := k.life, rand.IntN(len(k.keys))
	key := &k.keys[n]
	key.mu.Lock()
	defer key.mu.Unlock()
	if key.task == nil {
		key.task = newTask(l, "Keyed")
	}
	t := key.task
	t.mu.Lock()
	defer t.mu.Unlock()
	switch d := l.delay(); rand.IntN(6) {
	case 0:
		if k.keyed.Cancel(n) {
			t.disarm(false, "canceled", &l.soak.total.canceled)
		}
	case 1:
		due := l.soak.now() + max(0, d)
		if k.keyed.Reset(n, d) {
			t.arm(due)
			t.moved()
		}
	default:
		if next := newTask(l, "Keyed"); k.schedule(n, d, next, t) {
			key.task = next
		}
	}
}

// schedule schedules next for n, in the place of old, and reports whether it was
// accepted. The caller holds old.mu.
func (k *keys) schedule(n int, d time.Duration, next, old *task) bool {
	next.mu.Lock()
	defer next.mu.Unlock()
	next.arm(k.life.soak.now() + max(0, d))
	replaced, err := k.keyed.Schedule(n, d, next.run)
	if err != nil {
		next.refused(err)
		return false
	}
	if replaced {
		old.disarm(false, "replaced", &k.life.soak.total.canceled)
	}
	return true
}
