package wallclocktest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// Notices returns the descriptors on which the process waits for notices.
func Notices(t testing.TB) (fds []int) {
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		if text, err := os.ReadFile(info); err == nil && strings.Contains(string(text), "clockid: 0\n") {
			fd, _ := strconv.Atoi(filepath.Base(info))
			fds = append(fds, fd)
		}
	}
	return fds
}

// Notify gives a notice as if the wall clock was set. It makes the timer expire: that wakes
// the reader as the kernel does then, and only the result of the read is another.
func Notify(t testing.TB) {
	const absolute, cancelOnSet = 1 << 0, 1 << 1
	past := struct{ interval, value syscall.Timespec }{value: syscall.Timespec{Sec: 1}}
	for _, fd := range Notices(t) {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, uintptr(fd), absolute|cancelOnSet, uintptr(unsafe.Pointer(&past)), 0, 0, 0)
		if errno != 0 {
			t.Fatal(errno)
		}
	}
}
