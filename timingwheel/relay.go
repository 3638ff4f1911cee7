package timingwheel

import "time"

// relay is a timer of package time that does one of the wheel's own tasks, since the
// wheel is stopped.
//
// Package time may keep the function of a stopped timer for as long as others are
// pending. So that function holds no more than the relay, which stop empties.
type relay struct {
	timer *time.Timer
	task  func() // nil once done or stopped; guarded by shard.mu
}

// relay starts a relay, whose task is called with s.mu held. It is itself called so.
func (s *shard) relay(d time.Duration, task func()) *relay {
	r := &relay{task: task}
	r.timer = time.AfterFunc(d, func() {
		s.lock()
		defer s.mu.Unlock()
		if task := r.task; task != nil { // not stopped in the last moment
			r.task = nil
			task()
		}
	})
	return r
}

// stop is called with shard.mu held, and reports whether the task was pending. A nil
// relay has none.
func (r *relay) stop() bool {
	if r == nil || r.task == nil {
		return false
	}
	r.timer.Stop()
	r.task = nil
	return true
}
