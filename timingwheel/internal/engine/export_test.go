package engine

// What the tests of package engine_test need of an engine, which they have as a TimingWheel.

// SetLateAfter says since when the driver is late. From now on, every caller yields then.
func (e *Engine) SetLateAfter(at int64) {
	e.driver.LateHint.OneOf = 1
	e.driver.LateHint.LateAfter.Store(at)
}
