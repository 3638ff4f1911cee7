package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
)

// sample is what the process holds at one moment.
type sample struct {
	heap       uint64 // bytes in use after a collection
	goroutines int
	files      int // open files; 0 where the system does not tell
}

func measure() sample {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd")
	return sample{m.HeapAlloc, runtime.NumGoroutine(), len(files)}
}

// steady finds out whether what the process holds grows. One sample says little, because
// wheels come and go. So it compares the smallest samples of two quarters of the run.
type steady struct {
	begin, end sample
	samples    []sample // one a second
}

const (
	leastSamples = 40      // fewer do not give each quarter wheels of all kinds
	slackHeap    = 8 << 20 // for chance, and for the soak's own accounts
	slackRun     = 100     // goroutines
	slackFiles   = 4       // the runtime opens some when it first needs them
)

func (s *steady) add(m sample) { s.samples = append(s.samples, m) }

// quarters returns the smallest samples of the second and of the last quarter. The first
// quarter is not used, because everything grows in it. It returns false if the run was
// too short.
func (s *steady) quarters() (second, last sample, ok bool) {
	n := len(s.samples)
	if n < leastSamples {
		return sample{}, sample{}, false
	}
	return least(s.samples[n/4 : n/2]), least(s.samples[n*3/4:]), true
}

// check compares the last quarter with the second one, and the end with the start. At
// the end all wheels are gone.
func (s *steady) check(v *violations) {
	if s.end.heap > s.begin.heap+slackHeap {
		v.add("memory is left: %s in use, %s at the start", mb(s.end.heap), mb(s.begin.heap))
	}
	if s.end.files > s.begin.files+slackFiles {
		v.add("%d files are left open, %d at the start", s.end.files, s.begin.files)
	}
	second, last, ok := s.quarters()
	if !ok {
		return
	}
	if last.heap > second.heap*3/2+slackHeap {
		v.add("memory grows: at least %s in the last quarter, %s in the second", mb(last.heap), mb(second.heap))
	}
	if last.goroutines > second.goroutines*3/2+slackRun {
		v.add("goroutines grow: at least %d in the last quarter, %d in the second", last.goroutines, second.goroutines)
	}
}

func (s *steady) report(out io.Writer) {
	fmt.Fprintf(out, "  at the start: %+v\n  at the end: %+v\n", s.begin, s.end)
	if second, last, ok := s.quarters(); ok {
		fmt.Fprintf(out, "  at least, in the second quarter: %+v\n  and in the last: %+v\n", second, last)
	}
}

// least returns the smallest of each field.
func least(samples []sample) sample {
	m := samples[0]
	for _, s := range samples {
		m.heap = min(m.heap, s.heap)
		m.goroutines = min(m.goroutines, s.goroutines)
	}
	return m
}
