//go:build unix

// Package measure reads what a process has used: processor time, context switches, memory
// and collections of garbage.
package measure

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Settle collects garbage, so that a measurement pays only for its own. It collects twice,
// because an object with a cleanup goes in the second collection.
func Settle() {
	runtime.GC()
	runtime.GC()
}

// Usage is what the whole process has used up to a moment: subject, load generator and
// garbage collector.
type Usage struct {
	Time     time.Time
	CPU      time.Duration // user and system time
	Switches int64         // voluntary context switches: a thread went to sleep
}

// Now reads them. It costs a system call.
func Now() Usage {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return Usage{
		Time:     time.Now(),
		CPU:      time.Duration(r.Utime.Nano() + r.Stime.Nano()),
		Switches: int64(r.Nvcsw),
	}
}

// Sleep sleeps in the system. A time.Sleep is a timer of the runtime, and its end wakes
// threads of the process that a measurement of idleness would count.
func Sleep(d time.Duration) {
	left := syscall.NsecToTimespec(int64(d))
	for syscall.Nanosleep(&left, &left) == syscall.EINTR {
	}
}

// Garbage returns how many bytes were allocated since the start of the process, and how
// often the collector has started by itself.
func Garbage() (bytes, collections uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/cycles/automatic:gc-cycles"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}

// HeapBytes returns the bytes of live objects, after a collection.
func HeapBytes() float64 {
	Settle()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// ResetPeak gives free memory back to the system, and makes PeakMB begin anew, on Linux.
func ResetPeak() {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}

// PeakMB returns the most memory that the process had resident since ResetPeak, in units of
// a million bytes. It returns zero where the system has no /proc.
func PeakMB() float64 {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kilobytes, _ := strconv.ParseFloat(fields[1], 64)
			return kilobytes * 1024 / 1e6
		}
	}
	return 0
}

// MHz returns the frequency of the processor's clock as /proc/cpuinfo states it, and 0 where
// there is none.
func MHz() (mhz float64) {
	content, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(content)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "cpu MHz" {
			mhz, _ = strconv.ParseFloat(strings.TrimSpace(value), 64)
			return mhz
		}
	}
	return 0
}
