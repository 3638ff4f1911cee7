package timingwheel

import "time"

// Ticker sends the time on its channel at intervals, as time.Ticker does. Make one
// with [TimingWheel.NewTicker]. The wheel holds a Ticker until it is stopped, also
// when nobody else does: where package time would collect a forgotten ticker, this
// one ticks on. Stop it. A Ticker must not be copied.
type Ticker struct {
	// C is the channel on which the ticks are sent. It has room for one, and a tick
	// that comes while another waits there is dropped; so len(C) is 0 or 1 (with
	// time.Ticker it is always 0).
	C <-chan time.Time

	entry entry // has no shard if the user made the Ticker around a channel
	c     chan time.Time
	task  func() // due

	// Guarded by the shard's lock.
	period time.Duration // a whole number of the wheel's ticks
	next   time.Duration // when the pending tick is due, since the wheel's start
}

// NewTicker returns a [Ticker] that sends the time every d. The period rounds up to
// a tick of the wheel, a millisecond unless chosen otherwise, so that its ticks are
// evenly spaced: with the default, a period of 1.5ms is one of 2ms. Ticks do not
// drift: each is due one period after the one before was due, however late that was
// sent. A receiver that is slow, or a process that is paused, misses ticks, and
// stays on the grid. The driver itself sends, whatever the executor is busy with.
//
// NewTicker panics if d is not positive. When the wheel is stopped its tickers end,
// without closing C; one that is made on a stopped wheel never ticks. O(1) to make,
// for each tick and to stop.
func (w *TimingWheel) NewTicker(d time.Duration) *Ticker {
	if d <= 0 {
		panic("timingwheel: non-positive interval for NewTicker")
	}
	c := make(chan time.Time, 1)
	t := &Ticker{C: c, c: c}
	t.task = t.due
	now := w.clock.now()
	t.entry.join(w)
	defer t.entry.unlock()
	t.start(now, d)
	return t
}

// Tick returns the channel of a ticker that ticks every d, and nil if d is not
// positive. Nothing can stop that ticker but the wheel's Stop: use NewTicker for one
// that is to end earlier.
func (w *TimingWheel) Tick(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return w.NewTicker(d).C
}

// Stop ends the ticks: after it returns none is received from C, not even one that
// was sent before. It does not close C. Stop of a Ticker that NewTicker did not make
// does nothing. O(1).
func (t *Ticker) Stop() {
	if !t.entry.joined() {
		return
	}
	t.entry.lock()
	defer t.entry.unlock()
	t.end()
}

// Reset changes the period to d, rounded up to a tick of the wheel, and starts the
// Ticker again if it was stopped: the next tick comes after the new period, and no
// tick of the old one is received after Reset returns. On a stopped wheel the
// Ticker stays ended. O(1). It panics if d is not positive, and on a Ticker that
// NewTicker did not make.
func (t *Ticker) Reset(d time.Duration) {
	if d <= 0 {
		panic("timingwheel: non-positive interval for Ticker.Reset")
	}
	if !t.entry.joined() {
		panic("timingwheel: Reset called on uninitialized Ticker")
	}
	now := t.entry.clock().now()
	t.entry.lock()
	defer t.entry.unlock()
	t.end()
	t.start(now, d)
}

// The caller of the methods that follow holds the shard's lock.

// start starts a Ticker that is ended.
func (t *Ticker) start(now, d time.Duration) {
	clock := t.entry.clock()
	t.period = clock.roundUp(d)
	t.next = clock.roundUp(later(now, t.period))
	t.arm(now, t.next-now)
}

// due is the wheel's own task: it sends the time, and arms the Ticker for the next time on
// its grid that is still to come. It does nothing if the wheel was stopped first.
func (t *Ticker) due() {
	if t.entry.closed() {
		return
	}
	now := time.Now()
	select {
	case t.c <- now:
	default:
	}
	late := now.Sub(t.entry.clock().start) - t.next
	last := t.next + late - late%t.period
	t.next = later(last, t.period)
	t.arm(last, t.period)
}

func (t *Ticker) arm(now, d time.Duration) {
	if !t.entry.closed() {
		t.entry.add(delay{now, d}, t.task, own)
	}
}

// end takes the Ticker off the wheel, and takes back a tick that nobody has received.
func (t *Ticker) end() {
	t.entry.cancel()
	select {
	case <-t.c:
	default:
	}
}
