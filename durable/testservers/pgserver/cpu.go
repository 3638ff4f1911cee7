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
	own := statOf(s.PID())
	ticks := own.used + own.reaped
	for _, pid := range children(s.PID()) {
		ticks += statOf(pid).used
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func children(parent int) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && statOf(pid).parent == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stat is what the system says of a process. That of one that has ended is zero.
type stat struct {
	parent       int
	state        byte
	used, reaped int // ticks: its own, and those of children that it has waited for
}

func statOf(pid int) (s stat) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// pid (name, which may have spaces and parentheses) state parent ... utime stime cutime cstime
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if err != nil || len(f) < 15 {
		return stat{}
	}
	var n [15]int
	for i := 1; i < len(n); i++ {
		n[i], _ = strconv.Atoi(f[i])
	}
	return stat{parent: n[1], state: f[0][0], used: n[11] + n[12], reaped: n[13] + n[14]}
}
