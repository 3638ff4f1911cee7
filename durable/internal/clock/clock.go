// Package clock follows the clock of another machine.
//
// Only the monotonic clock of this one is used, so that it does not matter what its wall
// clock says, or when that is set. The offset is known to within half a round trip, so
// the sample with the shortest one is kept, until it is old: clocks drift apart by at
// most 100 us a second, which is a bad crystal.
package clock

import (
	"context"
	"sync"
	"time"
)

// Source reads the other clock: its time at a moment between the call and the return, and
// by how much that may be off besides.
type Source func(ctx context.Context) (time.Time, time.Duration, error)

const drift = 100e-6 // seconds a second

// stepMin is the least contradiction that counts as a Step. Clocks of servers that NTP
// keeps together are closer to one another, and what is smaller does no harm.
const stepMin = 100 * time.Millisecond

// Step tells how often the other clock was found to have been set, and of the last time
// by how much and when.
type Step struct {
	Count int64
	By    time.Duration // negative: back
	Seen  time.Time     // by this machine's clock; compared monotonically
}

type sample struct {
	local time.Time // the middle of the round trip; compared monotonically
	there time.Time
	off   time.Duration // half of the round trip, the drift in that, and what the source says
}

// Clock estimates the time of a Source. The zero Clock is not usable: call New, or Exact.
type Clock struct {
	source Source
	exact  func() time.Time // nil: by what was read of the source

	mu   sync.Mutex
	best sample
	told time.Time // when Tell was called last
	news chan struct{}
	step Step
	back time.Time // the latest time that it had shown before it was set back, since SetBackFrom; zero: it was not
}

// New returns a Clock that has read its source once.
func New(ctx context.Context, source Source) (*Clock, error) {
	c := &Clock{source: source, news: make(chan struct{}, 1)}
	return c, c.Sync(ctx)
}

// Exact returns a Clock that asks for the time each time, and is off by nothing: for one that
// is in this process, and maybe stands still. It has no source, and finds no Step.
func Exact(now func() time.Time) *Clock { return &Clock{exact: now} }

// Sync reads the source once more, as Read does.
func (c *Clock) Sync(ctx context.Context) error {
	before := time.Now()
	there, off, err := c.source(ctx)
	if err != nil {
		return err
	}
	c.Read(before, time.Since(before), there, off)
	return nil
}

// Read takes a time of the other clock that was read between a moment and the end of a round trip
// that began then, and by how much that may be off besides. It keeps what it had if that is the better estimate
// still, and does not contradict what was read: if it does, a clock was set.
func (c *Clock) Read(before time.Time, trip time.Duration, there time.Time, off time.Duration) {
	half := trip / 2
	s := sample{local: before.Add(half), there: there.Round(0), off: off + half + driftIn(half)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.best.local.IsZero() {
		c.best = s
		return
	}
	was, wasOff := c.best.at(s.local)
	by := s.there.Sub(was)
	if by.Abs() > s.off+wasOff+stepMin {
		c.step = Step{Count: c.step.Count + 1, By: by, Seen: s.local}
		if by < 0 && was.After(c.back) {
			c.back = was
		}
	}
	if s.off <= wasOff || by.Abs() > s.off+wasOff {
		c.best = s
	}
}

// Tell takes the time of the other clock as somebody else knows it now, and by how much that may be off.
func (c *Clock) Tell(there time.Time, off time.Duration) {
	now := time.Now()
	c.Read(now, 0, there, off)
	c.mu.Lock()
	c.told = now
	c.mu.Unlock()
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// News receives after each Tell.
func (c *Clock) News() <-chan struct{} { return c.news }

// ToldWithin reports whether Tell was called in the last d.
func (c *Clock) ToldWithin(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.told) < d
}

// Step returns the last step that Sync has found; its Count is 0 if there was none.
func (c *Clock) Step() Step {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.step
}

// SetBackFrom returns the latest time that the clock had shown before it was set back since the last call; zero: it was
// not set back. It may have been set forward and back between two calls of Now, by calls of Tell.
func (c *Clock) SetBackFrom() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := c.back
	c.back = time.Time{}
	return from
}

func (s sample) at(local time.Time) (time.Time, time.Duration) {
	since := local.Sub(s.local)
	return s.there.Add(since), s.off + driftIn(since.Abs())
}

// driftIn returns the most by which two clocks drift apart in d.
func driftIn(d time.Duration) time.Duration { return time.Duration(drift * float64(d)) }

// Now returns the estimate, and by how much it may be off in either direction.
func (c *Clock) Now() (time.Time, time.Duration) {
	if c.exact != nil {
		return c.exact(), 0
	}
	local := time.Now()
	c.mu.Lock()
	s := c.best
	c.mu.Unlock()
	return s.at(local)
}

// Time returns the estimate alone.
func (c *Clock) Time() time.Time {
	t, _ := c.Now()
	return t
}

// Until returns how long it takes until the other clock surely shows t, if it does not
// drift meanwhile. It is not positive if it surely does: who has waited asks once more.
func (c *Clock) Until(t time.Time) time.Duration {
	now, off := c.Now()
	return t.Sub(now) + off
}
