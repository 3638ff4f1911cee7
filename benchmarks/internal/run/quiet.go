package run

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Quiet says whether the machine is quiet, in a sentence that begins with "quiet", "busy"
// or "unknown". It sleeps for d, and looks how busy the processors are meanwhile, those
// that the hypervisor has lent to others included. Up to 2 % is quiet: the timers of an
// idle system take that much.
func Quiet(d time.Duration) string {
	before, ok := readBusy()
	time.Sleep(d)
	after, ok2 := readBusy()
	if !ok || !ok2 || after.all == before.all {
		return "unknown: the system does not tell"
	}
	return verdict(before, after, d)
}

func verdict(before, after busy, d time.Duration) string {
	share := float64(after.used-before.used) / float64(after.all-before.all)
	word := "quiet"
	if share > 0.02 {
		word = "busy"
	}
	return fmt.Sprintf("%s: the processors were %.1f %% busy for %v before it began", word, 100*share, d)
}

// busy is processor time since the system was started, of all processors, in units of the
// system's.
type busy struct{ used, all int64 }

func readBusy() (busy, bool) {
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return busy{}, false
	}
	return parseBusy(string(content))
}

// parseBusy reads the first line of Linux's /proc/stat: user, nice, system, idle, iowait,
// irq, softirq, steal, and two that user and nice contain.
func parseBusy(stat string) (b busy, ok bool) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return busy{}, false
	}
	for i, f := range fields[1:9] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return busy{}, false
		}
		b.all += n
		if i != 3 && i != 4 {
			b.used += n
		}
	}
	return b, true
}
