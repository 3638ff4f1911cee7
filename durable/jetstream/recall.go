package jetstream

import (
	"slices"
	"time"
)

// A job that a worker has put off because a limit is far behind, or something is paused, may be due
// at once by other limits and pauses. The server waits for as long as it was told. So the worker keeps
// the jobs that it has deferred, and requests them again when limits or pauses change.

// maxDeferred bounds the deferred jobs that a worker remembers. Beyond that, the oldest keep their
// original delay.
const maxDeferred = 1 << 15

type deferred struct {
	hd    *handle
	until time.Time
}

// keepDeferred remembers deferred jobs.
func (w *worker) keepDeferred(some []*handle, after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, hd := range some {
		w.deferred = append(w.deferred, deferred{hd, now.Add(after)})
	}
	if len(w.deferred) <= maxDeferred {
		return
	}
	w.deferred = slices.DeleteFunc(w.deferred, func(o deferred) bool { return o.until.Before(now) })
	if n := len(w.deferred); n > maxDeferred/2 { // so that it is not looked through each time
		w.deferred = slices.Clone(w.deferred[n-maxDeferred/2:])
	}
}

// recall has all of that handed out again that did not come yet.
func (w *worker) recall() {
	w.mu.Lock()
	all := w.deferred
	w.deferred = nil
	w.mu.Unlock()
	now := time.Now()
	for _, o := range all {
		if o.until.After(now) {
			o.hd.nak(0)
		}
	}
}
