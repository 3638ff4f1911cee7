package timingwheel

import (
	"context"
	"runtime/pprof"
	"runtime/trace"
)

// WithTrace names the wheel in profiles and traces, where by default nothing tells the
// tasks of one wheel from those of another. Its driver and its tasks have the pprof label
// "timingwheel" with this name, which CPU and goroutine profiles show and filter by; and in
// a trace (runtime/trace) each flush of a bucket is a region "name: flush", and each task
// "name: task". Channel timers and contexts, which are no tasks, are part of the flush.
//
// The labels are set before a task and cleared after it. Under manual drive it is
// AdvanceClock that has them, and its caller has none when it returns. Without a trace
// under way this costs some nanoseconds a task, and no allocation with the executors of
// this package.
func WithTrace(name string) Option {
	return func(c *config) {
		c.tracer = &tracer{
			labels: pprof.WithLabels(context.Background(), pprof.Labels("timingwheel", name)),
			flush:  name + ": flush",
			task:   name + ": task",
		}
	}
}

// tracer marks what goroutines do for a wheel. Nil marks nothing.
type tracer struct {
	labels      context.Context
	flush, task string // types of regions
}

// label gives the goroutine the wheel's labels, or none.
func (t *tracer) label() {
	if t == nil {
		clearLabels()
		return
	}
	pprof.SetGoroutineLabels(t.labels)
}

// startTask and startFlush begin a region of this goroutine, which the caller ends.
func (t *tracer) startTask() *trace.Region {
	pprof.SetGoroutineLabels(t.labels)
	return trace.StartRegion(t.labels, t.task)
}

func (t *tracer) startFlush() *trace.Region { return trace.StartRegion(t.labels, t.flush) }
