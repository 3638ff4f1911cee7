package timingwheel

// Counts are the accounts of a wheel since it was made. They cover all that waits on
// the wheel: functions, and with them channel timers, tickers, the deadlines of
// contexts, and the runs of jobs. At any time
//
//	Scheduled = Fired + Canceled + HandedBack + Pending
type Counts struct {
	Pending int64 // now; as [TimingWheel.Len]

	// Scheduled counts what was accepted. Arming a timer that is not pending counts,
	// and so does each run of a job.
	Scheduled int64

	Fired      int64 // came due: handed to the executor, or sent, or a context's end
	Canceled   int64 // taken off while pending
	HandedBack int64 // by Stop, or moved to package time, or ended with the wheel

	Reset    int64 // moved to another time while pending
	Cascaded int64 // moved to a finer level, each time
	Rejected int64 // refused with ErrTooManyPending
}

// add adds the accounts of a shard. A shard does not count Pending and Cascaded here:
// other figures of its own tell them.
func (c *Counts) add(o Counts) {
	c.Scheduled += o.Scheduled
	c.Fired += o.Fired
	c.Canceled += o.Canceled
	c.HandedBack += o.HandedBack
	c.Reset += o.Reset
	c.Rejected += o.Rejected
}
