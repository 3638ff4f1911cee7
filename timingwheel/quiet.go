package timingwheel

import (
	"slices"
	"sync"
	"sync/atomic"
)

// quiet tells those who wait for the end of all tasks when to look again. A call of tell
// costs one load while nobody watches.
type quiet struct {
	watched  atomic.Bool
	mu       sync.Mutex
	watchers []chan struct{} // guarded by mu
}

// watch returns a channel that can be received from whenever tell was called since the
// last receive. The caller ends it with forget.
func (q *quiet) watch() chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	told := make(chan struct{}, 1)
	q.watchers = append(q.watchers, told)
	q.watched.Store(true)
	return told
}

func (q *quiet) forget(told chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.watchers = slices.DeleteFunc(q.watchers, func(c chan struct{}) bool { return c == told })
	q.watched.Store(len(q.watchers) > 0)
}

func (q *quiet) tell() {
	if !q.watched.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, told := range q.watchers {
		select {
		case told <- struct{}{}:
		default:
		}
	}
}
