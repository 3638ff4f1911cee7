package engine

import (
	"time"
	"unsafe"
)

// Suspend pretends that the machine was suspended for d, in whole seconds, and that nobody
// has noticed.
func (e *Engine) Suspend(d time.Duration) {
	b := e.clock.boot
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.suspended
	b.suspended = func() (least, most time.Duration, err error) {
		least, most, err = before()
		return least + d, most + d, err
	}
	b.moveWall(d)
}

// StepWallClock pretends that the wall clock was set forward by d, in whole seconds.
func (e *Engine) StepWallClock(d time.Duration) {
	b := e.clock.boot
	if b == nil {
		e.clock.Start = wallBack(e.clock.Start, d) // base has no date that could move
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moveWall(d)
}

// moveWall sets the start back by d, and the time when the clock was made, by the wall clock
// alone. So that clock has moved forward since then. No times of package time are like that but
// those of time.Now.
func (b *bootTime) moveWall(d time.Duration) {
	start := wallBack(*b.start.Load(), d)
	b.start.Store(&start)
	b.made = wallBack(b.made, d)
}

func wallBack(t time.Time, d time.Duration) time.Time {
	inside := (*struct {
		wall uint64 // a flag, seconds since 1885 from bit 30 on, and nanoseconds
		ext  int64  // the monotonic reading
	})(unsafe.Pointer(&t))
	inside.wall -= uint64(d/time.Second) << 30
	return t
}
