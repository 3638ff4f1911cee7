package timingwheel

import "time"

// relay is a timer of package time that does a task of the wheel's own, because the wheel
// is stopped.
//
// Package time may keep the function of a stopped timer for as long as other timers are
// pending. So that function holds no more than the relay, and stop empties the relay.
type relay struct {
	timer *time.Timer
	at    time.Time
	task  func() // nil once done or stopped; guarded by the shard's lock
}

// startRelay has package time call the task at the given time, with the lock of s held.
// The caller holds that lock.
func startRelay(s *shard, at time.Time, task func()) *relay {
	if s.clock.isManual() {
		task() // its time has ended, and real time is another
		return nil
	}
	r := &relay{at: at, task: task}
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

// due returns the time of the relay's task, and false if none is pending. A nil relay has
// none. The caller holds the shard's lock.
func (r *relay) due() (time.Time, bool) {
	if r == nil || r.task == nil {
		return time.Time{}, false
	}
	return r.at, true
}

// stop ends the relay and reports whether its task was pending. A nil relay has none. The
// caller holds the shard's lock.
func (r *relay) stop() bool {
	if r == nil || r.task == nil {
		return false
	}
	r.timer.Stop()
	r.task = nil
	return true
}
