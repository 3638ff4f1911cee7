package timingwheel

import "sync/atomic"

// running counts the tasks of a wheel that were handed to the executor and have not
// ended.
type running struct {
	ended    [lanes]lane
	_        [56]byte
	admitted atomic.Int64
}

// lane counts tasks that have ended, on one of the goroutines that run them. A single
// counter is slower, since its cache line travels between the processors with each task:
// 64 to 94 ns of processor time for each of 1 M tasks that are due at the same moment and
// do nothing, against 57 to 70 ns with lanes.
type lane struct {
	_     [56]byte
	count atomic.Int64
}

const lanes = 8 // a power of two

// admit counts n tasks as running that are about to be handed to the executor. The caller
// holds the lock of their shard, and has held it since the tasks ceased to be pending. So
// at any time a task is pending, running or ended, and never in between. Shutdown relies
// on it: it looks for pending tasks first, with that lock, and then for running ones.
func (r *running) admit(n int) { r.admitted.Add(int64(n)) }

// end counts one task as ended.
func (r *running) end(l uint32) { r.ended[l%lanes].count.Add(1) }

// count returns how many tasks are running. It loads the ended ones first, so the result
// is never less than what was true at some moment meanwhile.
func (r *running) count() int64 {
	ended := int64(0)
	for i := range r.ended {
		ended += r.ended[i].count.Load()
	}
	return r.admitted.Load() - ended
}
