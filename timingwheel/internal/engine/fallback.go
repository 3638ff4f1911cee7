package engine

import "time"

// Fallback is a timer of package time that does a task of the wheel's own, because the wheel
// is stopped.
//
// Package time may keep the function of a stopped timer for as long as other timers are
// pending. So that function holds no more than the Fallback, and Stop empties it.
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
	f := &Fallback{at: at, task: task}
	f.timer = time.AfterFunc(time.Until(at), func() {
		s.lock()
		defer s.unlock()
		if task := f.task; task != nil { // nil: stopped at the last moment
			f.task = nil
			task()
		}
	})
	return f
}

// Due returns the time of the task, and false if none is pending. A nil Fallback has
// none. The caller holds the shard's lock.
func (f *Fallback) Due() (time.Time, bool) {
	if f == nil || f.task == nil {
		return time.Time{}, false
	}
	return f.at, true
}

// Stop ends the Fallback and reports whether its task was pending. A nil Fallback has none. The
// caller holds the shard's lock.
func (f *Fallback) Stop() bool {
	if f == nil || f.task == nil {
		return false
	}
	f.timer.Stop()
	f.task = nil
	return true
}
