package timingwheel

// Timeout names a task of [TimingWheel.Schedule] or [TimingWheel.ScheduleAt]. It
// is a small value to be copied and kept at will: when the task has fired or was
// cancelled, it names nothing any more, and it keeps no function alive. The zero
// Timeout names nothing.
type Timeout struct {
	shard  *shard
	handle handle
}

// Cancel takes the task off the wheel. It returns true if the call did so: then
// the function will not run and the wheel holds nothing of it any more. It returns
// false if the function was handed to the executor, handed back by
// [TimingWheel.Stop], or cancelled before, and for the zero Timeout; so false does
// not mean that the function has run. Of several calls at the same time one returns
// true. O(1).
func (t Timeout) Cancel() bool {
	if t.shard == nil {
		return false
	}
	t.shard.lock()
	defer t.shard.mu.Unlock()
	return t.shard.cancel(t.handle)
}
