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

// startTask begins a region of this goroutine. The caller ends it.
func (t *Tracer) startTask() *trace.Region {
	pprof.SetGoroutineLabels(t.labels)
	return trace.StartRegion(t.labels, t.task)
}

// StartFlush begins a region of this goroutine, and returns what ends it.
func (t *Tracer) StartFlush() (end func()) {
	if t == nil {
		return nothing
	}
	return trace.StartRegion(t.labels, t.flush).End
}

func nothing() {}

func ClearLabels() { pprof.SetGoroutineLabels(context.Background()) }
