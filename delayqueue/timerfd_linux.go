package delayqueue

import (
	"math"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// itimerspec is the kernel's struct of that name. The system calls are made here, and not by
// golang.org/x/sys/unix, since that package makes every program 115 KB larger.
type itimerspec struct{ interval, value syscall.Timespec }

// timerfd makes sure that the runtime wakes up in time to look at the queue's timer. Nil does
// nothing. The queue's lock guards it.
//
// An idle Go process sleeps in its network poller. That sleep takes whole milliseconds,
// and the kernel adds the slack that it allows a poll. This makes the runtime's timers
// late, not the timers themselves. The poller ends its sleep when something happens on a
// descriptor that it watches. So a timerfd is set to the same moment as the timer, and
// after it. Nobody reads it: the poller waits for edges, and each expiry is one.
//
// Whatever the timerfd does or fails to do, the timer alone says when the alarm rings. So
// nothing here can be early, lose a wake-up or hang. In a bubble of testing/synctest the
// timer is the bubble's, and the timerfd, which counts real time, changes nothing.
//
// The tempting way is to have a goroutine read the timerfd. It would wake up some 2 us
// sooner, and take less processor time. But an earlier offer would have to break into that
// read, and could be missed. And in a bubble the read would take real time.
type timerfd struct {
	fd   int      // of file; -1 once closed
	file *os.File // closes the descriptor, also when the queue is forgotten
}

// newTimerfd returns an error if the system refuses a timerfd, or if the poller refuses to
// watch it: too many open files, a sandbox, an old kernel.
func newTimerfd() (*timerfd, error) {
	const clockMonotonic = 1
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, clockMonotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return nil, os.NewSyscallError("timerfd_create", errno)
	}
	file := os.NewFile(fd, "timerfd") // hands it to the poller, since it does not block
	if err := file.SetDeadline(time.Time{}); err != nil {
		file.Close() // the poller refused it: a file without the poller has no deadlines
		return nil, err
	}
	return &timerfd{fd: int(fd), file: file}, nil
}

func (t *timerfd) works() bool { return t != nil && t.fd >= 0 }

// endPoll ends the poller's sleep once d has passed. d is positive: 0 would disarm it.
func (t *timerfd) endPoll(d time.Duration) {
	if t.works() && setTimerfd(t.fd, d) != nil {
		t.close() // somebody has closed it under us
	}
}

// setTimerfd makes the descriptor expire d from now. The maximum is 68 years, so that a
// 32-bit time does not overflow. It is a system call of 0.3 us that never blocks, so
// there is nothing to retry.
func setTimerfd(fd int, d time.Duration) error {
	d = min(d, math.MaxInt32*time.Second)
	at := itimerspec{value: syscall.NsecToTimespec(int64(d))}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, uintptr(fd), 0, uintptr(unsafe.Pointer(&at)), 0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("timerfd_settime", errno)
	}
	return nil
}

// Only close closes the descriptor, and only endPoll uses its number. The caller of both
// holds the queue's lock. So the number never names a descriptor of somebody else.
func (t *timerfd) close() {
	if t.works() {
		t.fd = -1
		t.file.Close()
	}
}
