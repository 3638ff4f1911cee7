package timingwheel

import (
	"context"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// Timer is one event: a function to run ([TimingWheel.AfterFunc]) or a time to send on C
// ([TimingWheel.NewTimer]). As with time.Timer, it can be stopped and reset, also after
// it has fired or was stopped. All methods are safe for concurrent use. A Timer must not
// be copied.
//
// A Timer that you hold keeps its function, for Reset. The wheel holds a Timer only while
// it is pending, but then also if nobody else does. Package time collects a channel timer
// that nobody refers to; this one stays on the wheel until it fires. Stop the timers that
// you no longer need.
type Timer struct {
	// C is the channel on which the time of the firing is sent; nil for AfterFunc.
	// It has room for one value, so len(C) is 1 while a value waits to be received
	// (with time.Timer it is always 0). Once Stop or Reset has returned, no value that
	// was sent before is received.
	C <-chan time.Time

	// The order matters: a push uses the word of lazy and the shard of entry. They are in
	// one cache line, wherever the Timer is.
	lazy  engine.LazyTask // its f is nil if AfterFunc was refused
	entry engine.Handle
}

// special is what a Timer has that is not one of AfterFunc. The f of its lazy is a
// pointer to it in disguise, and the word of that says so. With a field of its own, every
// Timer would have 56 bytes instead of 48.
type special struct {
	f       func()
	channel *channel // or nil, and add adds f
	add     groupAdder
}

// groupAdder adds a function of a [Group] with an adder. It returns its entry.
type groupAdder = func(after engine.Delay, f func(), add adder) (engine.Handle, error)

// become makes a Timer that is new a special one.
func (t *Timer) become(s *special) {
	t.lazy.F = engine.Disguise(s)
	t.lazy.Word.Store(engine.NotLazy)
}

// special returns nil for a Timer of AfterFunc.
func (t *Timer) special() *special {
	if t.lazy.Word.Load() != engine.NotLazy {
		return nil
	}
	return engine.Undisguise[special](t.lazy.F)
}

// channel returns the Timer's channel, and nil if it has a function.
func (t *Timer) channel() *channel {
	if s := t.special(); s != nil {
		return s.channel
	}
	return nil
}

// Stop prevents the Timer from firing. It returns true if the call stops it: then the
// function will not run. It returns false if the Timer has expired (its function was
// handed to the executor, and may be running), if it was stopped before, or if the wheel
// was stopped. If several calls overlap, one of them returns true. Stop does not wait for
// the function.
//
// With a channel, Stop also takes back a value that nobody has received yet, and returns
// true then. No value is received from C until the next Reset. On a stopped wheel a
// channel Timer goes on (see [TimingWheel.NewTimer]), and can be stopped.
//
// O(1). It panics on a Timer that neither AfterFunc nor NewTimer made.
func (t *Timer) Stop() bool {
	if !t.entry.Joined() {
		panic("timingwheel: Stop called on uninitialized Timer")
	}
	c := t.channel()
	if c != nil {
		t.entry.Clock().CheckOutside()
	}
	t.entry.LockShard() // without a defer, which costs 2 ns: nothing here can panic
	active := t.entry.Cancel()
	if c != nil && c.takeBack() {
		active = true
	}
	t.entry.UnlockShard()
	return active
}

// Reset sets the Timer to fire d from now, as [TimingWheel.Schedule] does, whether or not
// it is pending. It returns true if the Timer was pending: then the new time replaces the
// old one. It returns false if the Timer was not pending: it is armed all the same, and
// if its function is running, that run may overlap the next. Reset does not wait for it.
// It may be called from inside the function.
//
// A Reset to a later time only notes that time, which makes it cheap. From the second on,
// such a Reset of an AfterFunc takes no lock: it is one reading of the clock and one
// compare-and-swap. The price: among the functions of the new tick, this one runs in no
// certain order, and [Counts] counts these resets a little later.
//
// To push back the timer of an idle connection, call Reset; if it returns false the
// connection is being closed, so call Stop. [Timeout.Reset] does both in one step.
//
// With a channel, Reset also takes back a value that nobody has received yet, and returns
// true then: what is received from C after Reset was sent after it.
//
// On a stopped wheel, Reset of an AfterFunc returns false and the Timer stays dead; Reset
// of a channel Timer works as ever (see [TimingWheel.NewTimer]). During
// [TimingWheel.Shutdown], Reset of a pending AfterFunc to a later time returns false and
// changes nothing: the function runs when it was due before, unless Stop prevents it.
//
// O(1). It panics on a Timer that neither AfterFunc nor NewTimer made.
func (t *Timer) Reset(d time.Duration) bool {
	if !t.entry.Joined() {
		panic("timingwheel: Reset called on uninitialized Timer")
	}
	c := t.entry.Clock()
	after := engine.Delay{Now: c.Now(), D: d}
	c.Check(after.Now) // all of it as Handle.After, which the compiler does not inline
	return t.lazy.PushBack(c, after) || t.resetLocked(after)
}

// resetLocked is Reset with the lock, apart so that pushBack does not pay for the defer.
func (t *Timer) resetLocked(after engine.Delay) bool {
	t.entry.LockShard()
	defer t.entry.UnlockShard()
	c := t.channel()
	active := c != nil && c.takeBack()
	if t.move(after) {
		return true
	}
	if c != nil && t.entry.Cancel() {
		active = true // the wheel is being closed, and has not come to this timer yet
	}
	t.arm(after)
	return active
}

// Deadline returns the time for which the Timer is set, rounded up to a tick, and false
// if the Timer is not pending: it has expired, was stopped, or never could run. A value
// that waits in C does not count as pending. The time is no more than 292 years after the
// wheel was made. On a stopped wheel a channel Timer has a deadline as long as package
// time keeps it (see [TimingWheel.NewTimer]).
//
// O(1). It panics on a Timer that neither AfterFunc nor NewTimer made.
func (t *Timer) Deadline() (time.Time, bool) {
	if !t.entry.Joined() {
		panic("timingwheel: Deadline called on uninitialized Timer")
	}
	t.entry.LockShard()
	defer t.entry.UnlockShard()
	at, ok := t.entry.Due()
	if c := t.channel(); c != nil && !ok {
		return c.relay.Due()
	}
	return at, ok
}

// move is Reset of a Timer that is pending, and reports whether it was. The caller holds
// the lock.
func (t *Timer) move(after engine.Delay) bool {
	if t.special() != nil {
		return t.entry.Reset(after)
	}
	return t.entry.ResetLazy(after, &t.lazy)
}

// arm puts a Timer that is not pending on the wheel. On a stopped wheel it leaves a
// channel Timer to package time, and the Timer of a function dead. The caller holds the
// lock.
func (t *Timer) arm(after engine.Delay) {
	s := t.special()
	switch {
	case s == nil && t.lazy.F == nil: // dead from the beginning
	case s == nil:
		_ = t.entry.AcceptLazyAgain(after, &t.lazy)
	case s.channel != nil && t.entry.Closed():
		s.channel.moveToTime(t.entry.Clock().At(engine.Later(after.Now, max(0, after.D))))
	case s.channel != nil:
		t.entry.Add(after, s.f, engine.Internal|engine.NoExecutor)
	case s.f != nil:
		if e, err := s.add(after, s.f, (*engine.Handle).AcceptAgain); err == nil {
			t.entry.Follow(e)
		}
	}
}

// AfterFunc arranges for f to run once, d from now, as [TimingWheel.Schedule] does, and
// returns a [Timer] that can stop and reset it. It makes one allocation, the Timer. A nil
// f panics.
//
// A function that resets its own Timer is not periodic: each round is late by half a tick
// on average, which adds up. A [Ticker] and [TimingWheel.ScheduleAtFixedRate] do not drift.
//
// On a stopped wheel, and where [WithMaxPending] permits no more, the function never
// runs, and Stop and Reset of the Timer return false. Use Schedule to get an error.
func (w *TimingWheel) AfterFunc(d time.Duration, f func()) *Timer {
	if f == nil {
		panic("timingwheel: AfterFunc: nil function")
	}
	t := &Timer{lazy: engine.LazyTask{F: f}}
	w.startFunc(t, d)
	return t
}

// startFunc is apart from AfterFunc so that the compiler inlines AfterFunc. A caller who
// does not keep the Timer, or stops it where it was made, then needs no allocation.
func (w *TimingWheel) startFunc(t *Timer, d time.Duration) {
	e, now := w.here()
	after := engine.Delay{Now: now, D: d}
	t.entry.Join(e)
	if t.entry.Accept(after, t.lazy.F, engine.OneShot) != nil {
		t.lazy.F = nil
	}
	t.entry.UnlockShard() // not deferred, see schedule
}

// NewTimer returns a [Timer] that sends the time on its channel C, d from now, as
// time.NewTimer does. It sends no earlier, and no later than a function that is scheduled
// for d begins. If d is not positive, the driver sends as soon as it can. The driver
// itself sends, so the executor cannot delay it.
//
// When the wheel is stopped, a pending Timer moves to package time, and fires on time. So
// does one that is made or reset afterwards.
//
// O(1), and four allocations, two of them for the channel.
func (w *TimingWheel) NewTimer(d time.Duration) *Timer {
	t := &newChannel().timer
	e, now := w.here()
	after := engine.Delay{Now: now, D: d}
	t.entry.Join(e)
	defer t.entry.UnlockShard()
	t.arm(after)
	return t
}

// After returns a channel on which the time is sent, d from now: NewTimer(d).C. It cannot
// be stopped: the wheel holds it until it fires. Where the value is not always waited
// for, use NewTimer and Stop.
func (w *TimingWheel) After(d time.Duration) <-chan time.Time { return w.NewTimer(d).C }

// Sleep pauses the goroutine for at least d. It returns at once if d is not positive.
// When the wheel is stopped, Sleep goes on to its end.
//
// A task that runs inline ([Inline]) may call it, and delays the other functions of the
// wheel by as much. With [WithManualDrive] or [WithManualClock], another goroutine has to
// call Drive or Advance. There a task that runs inline must not call Sleep: the wheel
// would wait for the task, and the task for the wheel. (Under another executor Advance goes
// on after a while.)
func (w *TimingWheel) Sleep(d time.Duration) {
	if d > 0 {
		<-w.After(d)
	}
}

// SleepContext pauses the goroutine for at least d, or until ctx ends. It returns nil
// when d has passed, and context.Cause(ctx) when ctx ends first; then nothing is left on
// the wheel. If ctx has ended before the call, it returns the cause at once, whatever d
// is. Otherwise a d that is not positive returns nil at once. When both come at the same
// time, either wins. When the wheel is stopped, SleepContext goes on to its end, as Sleep
// does.
//
// For a task that runs inline ([Inline]), and with a wheel that is driven by hand, the
// rules of Sleep hold. O(1), and the allocations of [TimingWheel.NewTimer].
func (w *TimingWheel) SleepContext(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d <= 0 {
		return nil
	}
	timer := w.NewTimer(d)
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		timer.Stop()
		return context.Cause(ctx)
	}
}

// channel is the sending side of a Timer with a channel.
//
// The value is sent with the shard's lock held, and taken back with it held. So when Stop
// or Reset has the lock, the event is either pending or in the channel, from where it can
// be taken: there is no stale value. With a send outside the lock there would be one, of
// a sender that is held up between the wheel and the channel.
//
// The receiver is woken by the driver, which has been woken itself. Package time's channel
// is one step. With 64 goroutines that computed on two processors, and four that waited, the
// mean lateness was 1.6 to 1.9 times package time's, and with contexts 1.6 to 2.1 times. With
// one that waited, the medians were the same.
type channel struct {
	timer   Timer
	special special // of timer; its f is due
	c       chan time.Time

	// relay has taken over since the wheel was stopped; nil if nothing is pending there.
	// Guarded by the shard's lock.
	relay *engine.Fallback
}

func newChannel() *channel {
	c := &channel{c: make(chan time.Time, 1)}
	c.special = special{f: c.due, channel: c}
	c.timer.C = c.c
	c.timer.become(&c.special)
	return c
}

// The caller of the methods that follow holds the shard's lock.

// due is the wheel's own task: it sends the time, or moves to package time if the wheel
// was stopped first.
func (c *channel) due() {
	if e := &c.timer.entry; e.Dismissed() {
		c.moveToTime(e.Clock().Time(e.Deadline()))
		return
	}
	c.send()
}

// send never blocks: whoever arms the timer empties the channel first.
func (c *channel) send() {
	select {
	case c.c <- c.timer.entry.Clock().Read():
	default:
	}
}

// takeBack takes the value out of the channel, and the timer from package time. It
// reports whether there was something to take.
func (c *channel) takeBack() bool {
	active := c.relay.Stop()
	select {
	case <-c.c:
		return true
	default:
		return active
	}
}

// moveToTime has package time send the time when it is at. The wheel must be stopped.
func (c *channel) moveToTime(at time.Time) {
	c.relay = c.timer.entry.Fallback(at, c.send)
}
