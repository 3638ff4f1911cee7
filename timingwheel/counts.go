package timingwheel

// Counts are the accounts of a wheel since it was made. They cover all that waits on the
// wheel: functions, channel timers, tickers, the deadlines of contexts, and the runs of
// jobs. At any time
//
//	Scheduled = Fired + Canceled + HandedBack + Pending
type Counts struct {
	Pending int64 // what is pending now, as [TimingWheel.Len] returns it

	// Scheduled counts what was accepted. Arming a timer that is not pending counts, and
	// so does each run of a job.
	Scheduled int64

	Fired      int64 // came due: handed to the executor, sent, or a context was ended
	Canceled   int64 // taken off while pending
	HandedBack int64 // returned by Stop, moved to package time, or ended with the wheel

	// Reset counts what was moved to another time while pending. A Timer's resets to a later
	// time take no lock, from the second on. These are counted when the wheel next comes to
	// the Timer: when it fires or is stopped, at other resets, and at every 1024th.
	Reset int64

	Cascaded int64 // moved to a finer level; one entry may do so several times
	Rejected int64 // refused with ErrTooManyPending
}

// add adds the accounts of a shard. In these, Pending and Cascaded are 0: other figures
// of the shard have them.
func (c *Counts) add(o Counts) {
	c.Scheduled += o.Scheduled
	c.Fired += o.Fired
	c.Canceled += o.Canceled
	c.HandedBack += o.HandedBack
	c.Reset += o.Reset
	c.Rejected += o.Rejected
}
