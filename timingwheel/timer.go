package timingwheel

import "time"

// Timer is one event: a function to run ([TimingWheel.AfterFunc]) or a time to
// send on C ([TimingWheel.NewTimer]). As with time.Timer, it can be stopped, and
// set anew also after it has fired or was stopped. A Timer that its user still
// holds keeps its function, for Reset; the wheel itself holds nothing of a Timer
// that is not pending. One that is pending is the wheel's to hold, also when nobody
// else does: where package time would collect a forgotten channel timer, this one
// stays until it fires. Stop those that are not needed any more. A Timer must not be
// copied.
type Timer struct {
	// C is the channel on which the time of the firing is sent; nil for AfterFunc.
	// It has room for one value, so len(C) is 1 while that waits to be received
	// (with time.Timer it is always 0). Once Stop or Reset has returned, what was
	// sent before is not received any more.
	C <-chan time.Time

	shard   *shard
	f       func()   // nil if AfterFunc was refused
	handle  handle   // guarded by shard.mu
	channel *channel // nil for AfterFunc
}

// Stop prevents the Timer from firing. It returns true if the call stops it, and
// then the function will not run; and false if the Timer has expired (its function
// has been handed to the executor, and may be running), or was stopped before, or
// the wheel was. Of several calls at the same time one returns true. Stop does not
// wait for the function.
//
// With a channel, Stop also takes back a value that nobody has received yet, and
// then returns true too. After it no value is received from C until the next
// Reset. On a stopped wheel a channel Timer goes on (see [TimingWheel.NewTimer]), and
// can be stopped.
//
// O(1). It panics on a Timer that neither AfterFunc nor NewTimer made.
func (t *Timer) Stop() bool {
	s := t.shard
	if s == nil {
		panic("timingwheel: Stop called on uninitialized Timer")
	}
	s.lock()
	defer s.mu.Unlock()
	active := s.cancel(t.handle)
	if t.channel != nil && t.channel.takeBack() {
		active = true
	}
	return active
}

// Reset sets the Timer to fire d from now, as [TimingWheel.Schedule] does, whether
// or not it is pending. It returns true if the Timer was pending: then that event
// is replaced. Otherwise the Timer is armed all the same, and a run of the function
// that has begun may overlap the next; Reset does not wait for it. (Who pushes an
// idle connection's timer back and gets false knows that the connection is being
// closed, and calls Stop.) It may be called from inside the function.
//
// With a channel, Reset also takes back a value that nobody has received yet, and
// then returns true too: what is received from C after Reset was sent after it.
//
// On a stopped wheel Reset of an AfterFunc returns false and the Timer stays dead,
// and that of a channel Timer works as ever (see [TimingWheel.NewTimer]).
//
// O(1). It panics on a Timer that neither AfterFunc nor NewTimer made.
func (t *Timer) Reset(d time.Duration) bool {
	s := t.shard
	if s == nil {
		panic("timingwheel: Reset called on uninitialized Timer")
	}
	after := delay{s.clock.now(), d}
	s.lock()
	defer s.mu.Unlock()
	active := t.channel != nil && t.channel.takeBack()
	if s.reset(t.handle, after) {
		return true
	}
	t.start(after)
	return active
}

// start adds the Timer, which must not be pending, to its shard, or does what is
// left to do on a stopped wheel. It is called with shard.mu held.
func (t *Timer) start(after delay) {
	switch s := t.shard; {
	case t.channel != nil && s.closed:
		t.channel.moveToTime(after.d)
	case t.channel != nil:
		t.handle = s.add(after, t.f, own)
	case t.f != nil:
		if h, err := s.acceptAgain(after, t.f, oneShot); err == nil { // or else it is dead
			t.handle = h
		}
	}
}

// AfterFunc arranges for f to run once, d from now, as [TimingWheel.Schedule]
// does, and returns a [Timer] that can stop it and set it anew. It makes one
// allocation, the Timer. On a stopped wheel, and where [WithMaxPending] permits no
// more, the Timer's function never runs, and its Stop and Reset return false; use
// Schedule to be told.
func (w *TimingWheel) AfterFunc(d time.Duration, f func()) *Timer {
	if f == nil {
		panic("timingwheel: AfterFunc: nil function")
	}
	t := &Timer{f: f}
	w.startFunc(t, d)
	return t
}

// startFunc is apart so that AfterFunc can be inlined: who does not keep the Timer, or
// stops it where it was made, then needs no allocation.
func (w *TimingWheel) startFunc(t *Timer, d time.Duration) {
	after := delay{w.clock.now(), d}
	t.shard = w.lock()
	defer t.shard.mu.Unlock()
	h, err := t.shard.accept(after, t.f, oneShot)
	if err != nil {
		t.f = nil
	}
	t.handle = h
}

// NewTimer returns a [Timer] that sends the time on its channel C, d from now, as
// time.NewTimer does: not before d has passed, and as late as a function that is
// scheduled for d may be. A d that is not positive means now, or rather as soon as the
// driver comes to it: it is the driver that sends, whatever the executor is busy with.
//
// When the wheel is stopped, what is pending moves to package time, and fires all
// the same; so does what is started or set anew afterwards.
//
// O(1), and four allocations, two of them for the channel.
func (w *TimingWheel) NewTimer(d time.Duration) *Timer {
	t := &newChannel().timer
	after := delay{w.clock.now(), d}
	t.shard = w.lock()
	defer t.shard.mu.Unlock()
	t.start(after)
	return t
}

// After returns a channel on which the time is sent, d from now: NewTimer(d).C.
// Nothing can stop it, and until it fires the wheel holds it, though nobody else
// may. Where it is not always waited for, use NewTimer, and Stop.
func (w *TimingWheel) After(d time.Duration) <-chan time.Time { return w.NewTimer(d).C }

// Sleep pauses the goroutine for at least d; not at all if d is not positive. A
// task that runs inline ([Inline]) must not call it: it would wait for itself.
// With [WithManualDrive] somebody else has to call AdvanceClock meanwhile. When the wheel
// is stopped, Sleep goes on to its end.
func (w *TimingWheel) Sleep(d time.Duration) {
	if d > 0 {
		<-w.After(d)
	}
}
