package timingwheel

import (
	"time"

	"github.com/tickwheel/tickwheel/internal/nocopy"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// Ticker sends the time on its channel at intervals, as time.Ticker does. Make one with
// [TimingWheel.NewTicker], and stop it: the wheel holds a Ticker until it is stopped,
// also if nobody else does. (Package time collects a ticker that nobody refers to.) A
// Ticker must not be copied.
//
// Use a Ticker for a channel that has a waiting receiver most of the time. The wheel
// sends each tick, also if nobody receives. Package time spends nothing on a ticker while
// no goroutine waits for it: 10,000 of 250 ms without a receiver took 0.4 ms of processor
// time a second there, and 87 here. With receivers the wheel takes 0.9 to 1.6 of package
// time's.
type Ticker struct {
	_ nocopy.Mark

	// C is the channel on which the ticks are sent. It has room for one tick. A tick that
	// comes while another one waits there is dropped. So len(C) is 0 or 1 (with
	// time.Ticker it is always 0).
	C <-chan time.Time

	entry engine.Recurring // has no shard if the user made the Ticker around a channel
	c     chan time.Time
	task  func() // due

	// Guarded by the shard's lock.
	period time.Duration // a whole number of the wheel's ticks
	next   time.Duration // when the next tick is due, since the wheel's start
}

// NewTicker returns a [Ticker] that sends the time every d. The period rounds up to a
// tick of the wheel (a millisecond by default), so that the Ticker's ticks are evenly
// spaced: by default, 1.5ms becomes 2ms. Ticks do not drift: each is due one period after
// the one before was due, however late that was sent. If the receiver is slow or the
// process is paused, ticks are missed, and the next ones are on the same grid. The driver
// itself sends the ticks; they do not go through the executor.
//
// NewTicker panics if d is not positive. When the wheel is stopped its tickers end, and
// their channels are not closed. A Ticker that is made on a stopped wheel never ticks.
// O(1) to make, for each tick and to stop.
func (w *TimingWheel) NewTicker(d time.Duration) *Ticker {
	if d <= 0 {
		panic("timingwheel: non-positive interval for NewTicker")
	}
	c := make(chan time.Time, 1)
	t := &Ticker{C: c, c: c}
	t.task = t.due
	e, now := w.here()
	t.entry.Join(e)
	defer t.entry.UnlockShard()
	t.start(now, d)
	return t
}

// Tick returns the channel of a ticker that ticks every d. It returns nil if d is not
// positive. Only the wheel's Stop or Shutdown ends that ticker: use NewTicker for a
// ticker that ends earlier.
func (w *TimingWheel) Tick(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return w.NewTicker(d).C
}

// Stop ends the ticks. After it returns, no tick is received from C, not even one that
// was sent before. It does not close C. On a Ticker that NewTicker did not make, Stop
// does nothing. O(1).
func (t *Ticker) Stop() {
	if !t.entry.Joined() {
		return
	}
	t.entry.Clock().CheckOutside()
	t.entry.LockShard()
	defer t.entry.UnlockShard()
	t.end()
}

// Reset changes the period to d, rounded up to a tick of the wheel, and starts the Ticker
// again if it was stopped. The next tick comes after the new period. After Reset returns,
// no tick of the old period is received. On a stopped wheel the Ticker stays ended. O(1).
// Reset panics if d is not positive, and on a Ticker that NewTicker did not make.
func (t *Ticker) Reset(d time.Duration) {
	if d <= 0 {
		panic("timingwheel: non-positive interval for Ticker.Reset")
	}
	if !t.entry.Joined() {
		panic("timingwheel: Reset called on uninitialized Ticker")
	}
	now := t.entry.After(0).Now
	t.entry.LockShard()
	defer t.entry.UnlockShard()
	t.end()
	t.start(now, d)
}

// The caller of the methods that follow holds the shard's lock.

// start starts a Ticker that has ended.
func (t *Ticker) start(now, d time.Duration) {
	clock := t.entry.Clock()
	t.period = clock.RoundUp(d)
	t.next = clock.RoundUp(engine.Later(now, t.period))
	t.arm(now, t.next-now)
}

// due is the wheel's own task. It sends the time, and arms the Ticker for the next time
// on its grid that is still to come. If the wheel was stopped first, it does nothing.
func (t *Ticker) due() {
	if t.entry.Dismissed() {
		return
	}
	now := t.entry.Clock().Read()
	select {
	case t.c <- now:
	default:
	}
	late := t.entry.Clock().Since(now) - t.next
	last := t.next + late - late%t.period
	t.next = engine.Later(last, t.period)
	t.arm(last, t.period)
}

func (t *Ticker) arm(now, d time.Duration) {
	if !t.entry.Closed() {
		t.entry.Add(engine.Delay{Now: now, D: d}, t.task, engine.Internal|engine.NoExecutor)
	}
}

// end takes the Ticker off the wheel, and takes back a tick that nobody has received.
func (t *Ticker) end() {
	t.entry.Cancel()
	select {
	case <-t.c:
	default:
	}
}
