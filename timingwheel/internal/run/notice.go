package run

import (
	"slices"
	"sync"
	"sync/atomic"
)

// notice tells those who wait for a change when to look again. A call of Tell costs one
// load while nobody watches.
//
// To wait, call watch first, then look, and then receive. To make a change known, call Tell
// afterwards. So nobody waits for a change that has already happened.
type notice struct {
	watched  atomic.Bool
	mu       sync.Mutex
	watchers []chan struct{} // guarded by mu
}

// watch returns a channel that can be received from whenever Tell was called since the
// last receive. The caller ends it with forget.
func (n *notice) watch() chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	told := make(chan struct{}, 1)
	n.watchers = append(n.watchers, told)
	n.watched.Store(true)
	return told
}

func (n *notice) forget(told chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watchers = slices.DeleteFunc(n.watchers, func(c chan struct{}) bool { return c == told })
	n.watched.Store(len(n.watchers) > 0)
}

func (n *notice) Tell() {
	if !n.watched.Load() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, told := range n.watchers {
		select {
		case told <- struct{}{}:
		default:
		}
	}
}

// Until waits until ready returns true, or until done is closed. It looks at once, and
// then after each Tell.
func (n *notice) Until(done <-chan struct{}, ready func() bool) bool {
	told := n.watch()
	defer n.forget(told)
	for !ready() {
		select {
		case <-told:
		case <-done:
			return false
		}
	}
	return true
}
