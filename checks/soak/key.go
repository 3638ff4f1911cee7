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
	if rand.IntN(1000) == 0 {
		k.drain()
		return
	}
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
	case 2:
		k.checkDeadline(n, t)
	default:
		if next := newTask(l, "Keyed"); k.schedule(n, d, next, t) {
			key.task = next
		}
	}
}

// drain takes out all keys at once, or looks at them.
func (k *keys) drain() {
	for i := range k.keys {
		k.keys[i].mu.Lock()
		defer k.keys[i].mu.Unlock()
	}
	if rand.IntN(2) == 0 {
		for n := range k.keyed.All() {
			if k.keys[n].task == nil {
				k.life.violate("Keyed: All yields %d, which was never scheduled", n)
			}
		}
		return
	}
	begin := k.life.soak.begin
	for _, p := range k.keyed.Drain() {
		t := k.keys[p.Key].task
		t.mu.Lock()
		if due, ok := t.disarm(false, "drained", &k.life.soak.total.canceled); ok && p.Deadline.Before(begin.Add(due)) {
			k.life.violate("Keyed: drained with a deadline of %v, due at %v", p.Deadline.Sub(begin), due)
		}
		t.mu.Unlock()
	}
}

// checkDeadline checks the deadline of n, whose task is t. The caller holds t.mu.
func (k *keys) checkDeadline(n int, t *task) {
	begin := k.life.soak.begin
	at, ok := k.keyed.Deadline(n)
	if ok && (len(t.dues) == 0 || at.Before(begin.Add(t.dues[0]))) {
		k.life.violate("Keyed: a deadline of %v, due at %v", at.Sub(begin), t.dues)
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
