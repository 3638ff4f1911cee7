package pgserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPU is the processor time of the server: of its processes that live, and of those that its
// parent process has waited for. It is 0 where there is no /proc. Ticks are hundredths of a
// second on every Linux.
func (s *Server) CPU() time.Duration {
	parent := s.PID()
	_, ticks, reaped := cpuOf(parent)
	ticks += reaped
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if of, used, _ := cpuOf(pid); of == parent {
			ticks += used
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// cpuOf returns a process's parent, its own ticks, and those of children it has waited for.
func cpuOf(pid int) (parent, used, reaped int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, 0 // it has ended
	}
	// pid (name, which may have spaces) state parent ... utime stime cutime cstime
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 15 {
		return 0, 0, 0
	}
	var n [15]int
	for i := 1; i < len(n); i++ {
		n[i], _ = strconv.Atoi(f[i])
	}
	return n[1], n[11] + n[12], n[13] + n[14]
}
