package timingwheel

import "time"

// Timer is a task of [TimingWheel.AfterFunc]. As with time.Timer, it can be
// stopped, and set anew also after it has fired or was stopped. A Timer that its
// user still holds keeps its function, for Reset; the wheel itself holds nothing
// of a Timer that is not pending.
type Timer struct {
	shard  *shard
	f      func()
	handle handle // guarded by shard.mu
}

// Stop prevents the Timer from firing. It returns true if the call stops it, and
// then the function will not run; and false if the Timer has expired (its function
// has been handed to the executor, and may be running), or was stopped before, or
// the wheel was. Of
// several calls at the same time one returns true. Stop does not wait for the
// function. O(1). It panics on a Timer that AfterFunc did not make.
func (t *Timer) Stop() bool {
	if t.shard == nil {
		panic("timingwheel: Stop called on uninitialized Timer")
	}
	t.shard.lock()
	defer t.shard.mu.Unlock()
	return t.shard.cancel(t.handle)
}

// Reset sets the Timer to run its function d from now, as [TimingWheel.Schedule]
// does, whether or not it is pending. It returns true if the Timer was pending:
// then that run is replaced. Otherwise a run that has begun may overlap the next;
// Reset does not wait for it. It may be called from inside the function.
//
// On a stopped wheel Reset returns false and the Timer stays dead. O(1). It
// panics on a Timer that AfterFunc did not make.
func (t *Timer) Reset(d time.Duration) bool {
	s := t.shard
	if s == nil {
		panic("timingwheel: Reset called on uninitialized Timer")
	}
	after := delay{s.clock.now(), d}
	s.lock()
	defer s.mu.Unlock()
	if s.reset(t.handle, after) {
		return true
	}
	if !s.stopped {
		t.handle = s.add(after, t.f)
	}
	return false
}
