package run

import (
	"context"
	"runtime/pprof"
	"runtime/trace"
)

// Tracer marks what goroutines do for a wheel. Nil marks nothing.
type Tracer struct {
	labels      context.Context
	flush, task string // types of regions
}

func NewTracer(name string) *Tracer {
	return &Tracer{
		labels: pprof.WithLabels(context.Background(), pprof.Labels("timingwheel", name)),
		flush:  name + ": flush",
		task:   name + ": task",
	}
}

// Label gives the goroutine the wheel's labels, or none if t is nil.
func (t *Tracer) Label() {
	if t == nil {
		ClearLabels()
		return
	}
	pprof.SetGoroutineLabels(t.labels)
}

// startTask and StartFlush begin a region of this goroutine. The caller ends it.
func (t *Tracer) startTask() *trace.Region {
	pprof.SetGoroutineLabels(t.labels)
	return trace.StartRegion(t.labels, t.task)
}

func (t *Tracer) StartFlush() *trace.Region { return trace.StartRegion(t.labels, t.flush) }

func ClearLabels() { pprof.SetGoroutineLabels(context.Background()) }
