package engine

import "time"

// Fallback is a timer of package time that does a task of the wheel's own, because the wheel
// is stopped.
//
// Package time may keep the function of a stopped timer for as long as other timers are
// pending. So that function holds no more than the relay, and stop empties the relay.
type Fallback struct {
	timer *time.Timer
	at    time.Time
	task  func() // nil once done or stopped; guarded by the shard's lock
}

// startFallback has package time call the task at the given time, with the lock of s held.
// The caller holds that lock.
func startFallback(s *shard, at time.Time, task func()) *Fallback {
	if s.clock.IsManual() {
		task() // its time has ended, and real time is another
		return nil
	}
	r := &Fallback{at: at, task: task}
	r.timer = time.AfterFunc(time.Until(at), func() {
		s.lock()
		defer s.unlock()
		if task := r.task; task != nil { // nil: stopped at the last moment
			r.task = nil
			task()
		}
	})
	return r
}

// Due returns the time of the relay's task, and false if none is pending. A nil relay has
// none. The caller holds the shard's lock.
func (r *Fallback) Due() (time.Time, bool) {
	if r == nil || r.task == nil {
		return time.Time{}, false
	}
	return r.at, true
}

// Stop ends the relay and reports whether its task was pending. A nil relay has none. The
// caller holds the shard's lock.
func (r *Fallback) Stop() bool {
	if r == nil || r.task == nil {
		return false
	}
	r.timer.Stop()
	r.task = nil
	return true
}
