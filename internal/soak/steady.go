package main

import (
	"os"
	"runtime"
)

// sample is what the process holds at a moment.
type sample struct {
	heap       uint64 // bytes in use after a collection
	goroutines int
	files      int // open; 0 where it cannot be told
}

func measure() sample {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd")
	return sample{m.HeapAlloc, runtime.NumGoroutine(), len(files)}
}

// steady tells whether what the process holds grows. What it holds at one moment says
// little, since wheels come and go; so it looks at the least of a quarter of the run.
type steady struct {
	begin, end sample
	samples    []sample // one a second
}

const (
	leastSamples = 40      // for quarters that have had wheels of all kinds
	slackHeap    = 8 << 20 // what chance and the soak's own accounts may make
	slackRun     = 100     // goroutines
	slackFiles   = 4       // that the runtime opens when it first needs them
)

func (s *steady) add(m sample) { s.samples = append(s.samples, m) }

// check compares the last quarter with the second, since the first sees things grow, and
// the end with the begin. By then all wheels are gone.
func (s *steady) check(v *violations) {
	if s.end.heap > s.begin.heap+slackHeap {
		v.add("memory is left: %s in use, %s at the begin", mb(s.end.heap), mb(s.begin.heap))
	}
	if s.end.files > s.begin.files+slackFiles {
		v.add("%d files are left open, %d at the begin", s.end.files, s.begin.files)
	}
	n := len(s.samples)
	if n < leastSamples {
		return
	}
	before, after := floor(s.samples[n/4:n/2]), floor(s.samples[n*3/4:])
	if after.heap > before.heap*3/2+slackHeap {
		v.add("memory grows: at least %s in the last quarter, %s in the second", mb(after.heap), mb(before.heap))
	}
	if after.goroutines > before.goroutines*3/2+slackRun {
		v.add("goroutines grow: at least %d in the last quarter, %d in the second", after.goroutines, before.goroutines)
	}
}

func floor(samples []sample) (least sample) {
	least = samples[0]
	for _, m := range samples {
		least.heap = min(least.heap, m.heap)
		least.goroutines = min(least.goroutines, m.goroutines)
	}
	return least
}
