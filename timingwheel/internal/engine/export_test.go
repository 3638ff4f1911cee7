package engine

import "time"

// What the tests of package engine_test need of an engine, which they have as a TimingWheel.

// SetLateAfter says since when the driver is late. From now on, every caller yields then.
func (e *Engine) SetLateAfter(at time.Duration) {
	e.driver.lateHint.oneOf = 1
	e.driver.lateHint.lateAfter.Store(uint64(at))
}

// MarkClosed is the first of the two steps in which Shutdown begins.
func (e *Engine) MarkClosed() { e.markClosed() }
