package delayqueue

import (
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A timerfdSleeper sleeps on a timer of the runtime, and makes sure that the runtime
// wakes up in time to look at it.
//
// An idle Go process sleeps in its network poller. That sleep takes whole milliseconds,
// and the kernel adds the slack that it allows a poll. This makes the runtime's timers
// late, not the timers themselves. The poller ends its sleep when something happens on a
// descriptor that it watches. So a timerfd is set to the same moment as the timer. Nobody
// reads it: the poller waits for edges, and each expiry is one.
//
// The timerfd does nothing but end the poller's sleep. It is always set after the timer,
// so the timer's time has come when the timerfd expires. Whatever the timerfd does or
// fails to do, the timer alone says when the alarm rings. So nothing here can be early,
// lose a wake-up or hang. Without the timerfd the alarm is as late as a coarseSleeper's.
// In a bubble of testing/synctest the timer is the bubble's. The timerfd counts real time,
// and changes nothing there.
//
// The tempting way is to have a goroutine read the timerfd. It would wake up some 2 us
// sooner, and take less processor time. But an earlier offer would have to break into that
// read, and could be missed. And in a bubble of synctest the read would take real time.
type timerfdSleeper struct {
	coarseSleeper
	fd   int      // of file; -1 once closed
	file *os.File // closes the descriptor, also when the queue is forgotten
}

// newPreciseSleeper returns an error if the system refuses a timerfd, or if the poller
// refuses to watch it: too many open files, a sandbox, an old kernel.
func newPreciseSleeper() (sleeper, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "timerfd") // hands it to the poller, since it does not block
	if err := file.SetDeadline(time.Time{}); err != nil {
		file.Close() // the poller refused it: a file without the poller has no deadlines
		return nil, err
	}
	return &timerfdSleeper{fd: fd, file: file}, nil
}

func (s *timerfdSleeper) callAfter(d time.Duration, f func()) {
	s.coarseSleeper.callAfter(d, f)
	s.endPoll(d)
}

// endPoll ends the poller's sleep once d has passed.
func (s *timerfdSleeper) endPoll(d time.Duration) {
	if s.fd < 0 || d <= 0 { // 0 would disarm it
		return
	}
	if err := setTimerfd(s.fd, d); err != nil {
		s.close() // somebody has closed it under us
	}
}

// setTimerfd makes the descriptor expire d from now. The maximum is 68 years, so that a
// 32-bit time does not overflow. It is a system call of 0.3 us that never blocks, so
// there is nothing to retry.
func setTimerfd(fd int, d time.Duration) error {
	d = min(d, math.MaxInt32*time.Second)
	return unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
}

func (s *timerfdSleeper) precise() bool { return s.fd >= 0 }

// Only close closes the descriptor, and only endPoll uses its number. The caller of both
// holds the queue's lock. So the number never names a descriptor of somebody else.
func (s *timerfdSleeper) close() {
	if s.fd >= 0 {
		s.fd = -1
		s.file.Close()
	}
}
