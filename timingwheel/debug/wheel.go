package debug

import (
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// source is what is asked of a wheel: two methods that only read.
type source interface {
	Stats() timingwheel.Stats
	Snapshot(next int) timingwheel.Snapshot
}

// nextDeadlines is how many of the next deadlines a sample has. They are more than
// the page has lines, because many may be of one tick, which is one line.
const nextDeadlines = 64

// share is the part of one processor that samples of a wheel may take: one in so many.
const share = 50

// wheel is a source under its name, with the last sample that was taken of it.
type wheel struct {
	name     string
	source   source
	interval time.Duration

	mu   sync.Mutex // guards what follows; held while a sample is taken, so that all who wait share it
	last sample
}

// sample is what was found in a wheel at one time. It is not changed any more, and so
// can be read by many.
type sample struct {
	Name     string               `json:"name"`
	Stats    timingwheel.Stats    `json:"stats"`
	Snapshot timingwheel.Snapshot `json:"snapshot"`

	taken time.Time     // when it was complete
	cost  time.Duration // how long that took
}

// sample returns what is in the wheel now or was a moment ago. However many ask, the
// wheel is passed over once in half an interval at the most, and for no more than a
// 25th of the time.
func (w *wheel) sample() sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	if age := time.Since(w.last.taken); age < max(w.interval, share*w.last.cost)/2 {
		return w.last
	}
	start := time.Now()
	w.last = sample{Name: w.name, Stats: w.source.Stats(), Snapshot: w.source.Snapshot(nextDeadlines)}
	w.last.taken = time.Now()
	w.last.cost = w.last.taken.Sub(start)
	return w.last
}
