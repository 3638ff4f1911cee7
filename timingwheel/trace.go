package timingwheel

import (
	"context"
	"runtime/pprof"
	"runtime/trace"
)

// tracer marks what goroutines do for a wheel. Nil marks nothing.
type tracer struct {
	labels      context.Context
	flush, task string // types of regions
}

func newTracer(name string) *tracer {
	return &tracer{
		labels: pprof.WithLabels(context.Background(), pprof.Labels("timingwheel", name)),
		flush:  name + ": flush",
		task:   name + ": task",
	}
}

// label gives the goroutine the wheel's labels, or none if t is nil.
func (t *tracer) label() {
	if t == nil {
		clearLabels()
		return
	}
	pprof.SetGoroutineLabels(t.labels)
}

// startTask and startFlush begin a region of this goroutine. The caller ends it.
func (t *tracer) startTask() *trace.Region {
	pprof.SetGoroutineLabels(t.labels)
	return trace.StartRegion(t.labels, t.task)
}

func (t *tracer) startFlush() *trace.Region { return trace.StartRegion(t.labels, t.flush) }

func clearLabels() { pprof.SetGoroutineLabels(context.Background()) }
