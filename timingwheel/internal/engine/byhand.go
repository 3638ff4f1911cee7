package engine

import (
	"context"
	"math"
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
		b, next := d.next()
		if e.clock.IsManual() && next > e.clock.Now() {
			e.settle.now(e.runner)
			b, next = d.next()
		}
		if next > end {
			return handed
		}
		e.clock.advance(next)
		if d.queue.DropHead(b) { // or else another is the head by now
			d.flushFirst(b)
			handed += d.flushRest()
		}
	}
}

// next returns the bucket that expires first, and when; the end of all time if there is none.
func (d *driver) next() (b *slot, at time.Duration) {
	d.dropEmpty()
	b, t, ok := d.queue.Peek()
	if !ok {
		return nil, math.MaxInt64
	}
	return b, t.Sub(d.clock.Start)
}

// settle waits, before a manual clock moves, until the tasks that were handed on have ended. So all
// that they add is on the wheel before time goes on.
type settle struct {
	blocked  int64         // tasks that are waited for no more
	patience time.Duration // for how long the next one is waited for that blocks
}

// now settles the tasks of a runner.
//
// A task may never end, or only at a later time of this clock, and cannot be told from one that
// takes long. So after a while settle takes the tasks that still run for blocked. It no longer
// waits for as many, but gives them a moment each time, in case they have been unblocked.
// Where tasks block again and again, it becomes less patient, or a year with one in each
// hour would take hours.
func (s *settle) now(r *run.Runner) {
	if r.Running.Load() == 0 {
		s.blocked = 0
		return
	}
	if !r.WaitUntilRunning(s.blocked, s.patience) {
		s.blocked = r.Running.Load()
		s.patience = max(s.patience/2, 10*time.Millisecond)
	}
	if s.blocked > 0 {
		r.WaitUntilRunning(0, time.Millisecond)
		s.blocked = min(s.blocked, r.Running.Load())
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
