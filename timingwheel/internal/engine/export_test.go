package engine

import "time"

// The tests of package engine_test, which have an engine as a TimingWheel, need these methods.

// SetLateAfter says since when the driver is late. From now on, every caller yields then.
func (e *Engine) SetLateAfter(at time.Duration) {
	e.driver.lateHint.oneOf = 1
	e.driver.lateHint.lateAfter.Store(uint64(at))
}

// MarkClosed is the first of the two steps in which Shutdown begins.
func (e *Engine) MarkClosed() { e.markClosed() }
