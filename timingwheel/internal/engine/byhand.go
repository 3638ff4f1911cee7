package engine

import (
	"context"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// An engine that is driven by hand has no driver goroutine. The caller of Drive or of
// Advance does the driver's steps, on its own goroutine.

// IsManual reports whether somebody has to call Drive or Advance.
func (e *Engine) IsManual() bool { return e.driving != nil }

// Drive waits up to timeout for the next bucket, and does all that is due by then. It
// returns how many tasks it handed to the executor. See TimingWheel.Drive.
func (e *Engine) Drive(timeout time.Duration) int {
	e.mustEndHere()
	ctx, cancel := context.WithTimeout(e.ctx, timeout)
	defer cancel()
	if !e.takeTurn(ctx) {
		return 0
	}
	defer e.endTurn()

	d := &e.driver
	handed := d.flushRest() // what is left of a call in which a task panicked or ended the goroutine
	d.dropEmpty()
	b, ok := d.queue.Poll()
	if !ok {
		var err error
		if b, err = d.queue.Take(ctx); err != nil {
			return handed
		}
	}
	return handed + d.flushAll(b, time.Now())
}

// takeTurn waits for the turn to drive, and reports whether it has it. If the turn is
// free and ctx has ended, it takes the turn. The goroutine gets the wheel's labels.
func (e *Engine) takeTurn(ctx context.Context) bool {
	select {
	case e.driving <- struct{}{}:
	default:
		select {
		case e.driving <- struct{}{}:
		case <-ctx.Done():
			return false
		}
	}
	if t := e.runner.Tracer; t != nil {
		t.Label()
	}
	return true
}

// endTurn gives up the turn. The caller's next work is not the wheel's.
func (e *Engine) endTurn() {
	if e.runner.Tracer != nil {
		run.ClearLabels()
	}
	<-e.driving
}

// Advance moves a manual clock by d, and does all that comes due meanwhile. It returns how
// many tasks it handed to the executor.
func (e *Engine) Advance(d time.Duration) int {
	if !e.takeTurn(e.ctx) {
		return 0
	}
	defer e.endTurn()
	end := min(Later(e.clock.Now(), d), endOfClock)
	handed := e.driver.flushRest() // what is left of a call in which a task panicked or ended the goroutine
	for b := e.advanceToNext(end); b != nil; b = e.advanceToNext(end) {
		if e.driver.queue.DropHead(b) { // or else another is the head by now
			e.driver.flushFirst(b)
			handed += e.driver.flushRest()
		}
	}
	if e.ctx.Err() == nil {
		e.clock.set(end)
	}
	return handed
}

// advanceToNext sets the clock to the expiration of the next bucket, which it returns; nil
// if there is none up to end.
func (e *Engine) advanceToNext(end time.Duration) *slot {
	e.driver.dropEmpty()
	b, at, ok := e.driver.queue.Peek()
	next := at.Sub(e.clock.Start)
	if !ok || next > end {
		return nil
	}
	e.clock.set(max(next, e.clock.Now()))
	return b
}
