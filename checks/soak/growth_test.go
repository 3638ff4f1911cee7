package soak

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// sample is what the process holds at one moment.
type sample struct{ heap, goroutines, files int } // Files are 0 where the system does not tell.

func measure() sample {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd")
	return sample{int(m.HeapAlloc), runtime.NumGoroutine(), len(files)}
}

// growth finds out whether what the process holds grows. One sample says little, because wheels
// come and go, so the smallest samples of two quarters of the run are compared.
type growth struct {
	begin, end sample
	samples    []sample // one a second
}

const (
	slackHeap  = 8 << 20 // for chance, and for the soak's own accounts
	slackRun   = 100     // goroutines
	slackFiles = 4       // the runtime opens some when it first needs them
)

// check compares the last quarter with the second, since everything grows in the first, and the
// end with the start: at the end all wheels are gone.
func (g *growth) check(s *soak) {
	if g.end.heap > g.begin.heap+slackHeap || g.end.files > g.begin.files+slackFiles {
		s.violate("memory or files are left: %+v, %+v at the start", g.end, g.begin)
	}
	n := len(g.samples)
	if n < 40 { // fewer do not give each quarter wheels of all kinds
		return
	}
	second, last := least(g.samples[n/4:n/2]), least(g.samples[n*3/4:])
	if last.heap > second.heap*3/2+slackHeap || last.goroutines > second.goroutines*3/2+slackRun {
		s.violate("the process grows: at least %+v in the last quarter, %+v in the second", last, second)
	}
}

// least returns the smallest of each field.
func least(samples []sample) sample {
	m := samples[0]
	for _, s := range samples {
		m.heap, m.goroutines = min(m.heap, s.heap), min(m.goroutines, s.goroutines)
	}
	return m
}

// Growth of memory, goroutines and open files is a violation.
func TestGrowthIsSeen(t *testing.T) {
	few, many := sample{heap: 20 << 20, goroutines: 200}, sample{}
	for want, c := range map[string]struct {
		step sample // by which each sample is larger than the one before
		end  sample
	}{
		"none":       {end: few},
		"heap":       {step: sample{heap: 1 << 20}, end: few},
		"goroutines": {step: sample{goroutines: 10}, end: few},
		"memory":     {end: sample{heap: 40 << 20}},
		"files":      {end: sample{files: 9}},
	} {
		g := growth{begin: few, end: c.end}
		for i := range 100 {
			many = sample{few.heap + i%10<<20 + i*c.step.heap, few.goroutines + i%50 + i*c.step.goroutines, 0}
			g.samples = append(g.samples, many)
		}
		seen := 0
		g.check(&soak{violated: func(string) { seen++ }})
		require.Equal(t, want != "none", seen > 0, want)
	}
}
