package engine

import (
	"context"
	"slices"
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
	b, ok := d.queue.Poll() // Take would take nothing once the timeout has ended
	if !ok {
		var err error
		if b, err = d.queue.Take(ctx); err != nil {
			return handed
		}
	}
	d.flushFirst(b)
	return handed + e.flushUntil(e.clock.Now())
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
	handed := e.flushUntil(end)
	if e.ctx.Err() == nil {
		e.clock.advance(end)
	}
	return handed
}

// flushUntil completes what was begun, and flushes all that expires up to end. A manual clock
// goes from one bucket to the next. It returns how many tasks it handed on.
func (e *Engine) flushUntil(end time.Duration) (handed int) {
	d := &e.driver
	handed = d.flushRest()
	for {
		d.dropEmpty()
		b, at, ok := d.queue.Peek()
		next := at.Sub(e.clock.Start)
		if !ok || next > end {
			return handed
		}
		e.clock.advance(next)
		if d.queue.DropHead(b) { // or else another is the head by now
			d.flushFirst(b)
			handed += d.flushRest()
		}
	}
}

// flushRest completes the cascades under way, and returns how many tasks it handed on.
func (d *driver) flushRest() (handed int) {
	for more := true; more; more = d.continueCascades() {
		handed += len(d.found.tasks)
		d.handOver()
		d.startWorkers()
	}
	return handed
}

// keep saves the tasks that a panic has kept from running, for the next handOver: the caller
// of Drive may recover the panic. The tasks that have run are nil.
func (d *driver) keep(tasks []run.Task) {
	d.found.tasks = slices.DeleteFunc(tasks, func(t run.Task) bool { return t == nil })
}
