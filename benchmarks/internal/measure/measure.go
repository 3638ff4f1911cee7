//go:build unix

// Package measure reads what the figures are made of: the clock, the processor
// time and the context switches of the process, its memory, and percentiles.
package measure

import (
	"math"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Settle collects garbage, so that a measurement pays for none but its own.
// Twice, since what has a cleanup goes in the second.
func Settle() {
	runtime.GC()
	runtime.GC()
}

// Usage is what the process has used up to a moment. The difference of two is
// that of the whole process: the subject's goroutines, the load generator and the
// garbage collector.
type Usage struct {
	Time        time.Time
	CPU         time.Duration // user and system time
	Voluntary   int64         // context switches: a thread went to sleep
	Involuntary int64         // context switches: a thread was preempted
	Bytes       uint64        // allocated since the start
	Allocs      uint64
	Collections uint64 // of garbage, forced ones apart
}

// Now reads them. It stops the world for some microseconds, outside of what is
// measured.
func Now() Usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := CPU()
	u.Bytes, u.Allocs, u.Collections = m.TotalAlloc, m.Mallocs, Collections()
	return u
}

// CPU reads all but what is allocated, and costs a system call.
func CPU() Usage {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return Usage{
		Time:        time.Now(),
		CPU:         time.Duration(r.Utime.Nano() + r.Stime.Nano()),
		Voluntary:   int64(r.Nvcsw),
		Involuntary: int64(r.Nivcsw),
	}
}

// Sleep sleeps in the system. A time.Sleep is a timer of the runtime, whose end
// wakes the runtime's monitor some tens of times: more than what a measurement of
// idleness looks for.
func Sleep(d time.Duration) {
	left := syscall.NsecToTimespec(int64(d))
	for syscall.Nanosleep(&left, &left) == syscall.EINTR {
	}
}

// Collections returns how often the collector has come by itself, and costs little.
func Collections() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/automatic:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// HeapBytes returns the bytes of live objects, after a collection.
func HeapBytes() float64 {
	Settle()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// PeakResident returns the most memory that the process has had resident so far,
// in bytes. Not from getrusage, which counts the parent's before exec; zero where
// there is no /proc.
func PeakResident() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kilobytes, _ := strconv.ParseFloat(fields[1], 64)
			return kilobytes * 1024
		}
	}
	return 0
}

// Percentile returns the smallest value that at least p per cent of the values
// are not greater than. The values are sorted, and there is at least one.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	n := len(sorted)
	rank := int(math.Ceil(p * float64(n) / 100))
	return sorted[min(max(rank, 1), n)-1]
}

// Early returns the share of values below zero, in per cent. The values are
// sorted.
func Early(sorted []time.Duration) float64 {
	i, _ := slices.BinarySearch(sorted, 0)
	return 100 * float64(i) / float64(len(sorted))
}

// Ms returns d in milliseconds.
func Ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
