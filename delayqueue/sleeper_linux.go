package delayqueue

import (
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A timerfdSleeper sleeps on a timer of the runtime, and sees to it that the runtime
// wakes up in time to look at it. An idle Go process sleeps in its network poller,
// for whole milliseconds and with what slack the kernel allows a poll: that is what
// makes its timers late, not the timers. The poller ends its sleep when something
// happens on a descriptor that it watches. So a timerfd is set to the same moment as
// the timer. Nobody reads it: the poller asks for edges, and each expiry is one.
//
// All that the timerfd does is to end the poller's sleep. It is always set after the
// timer, so that the timer has come when it expires; and whatever it does or fails
// to do, the timer alone says when the leader wakes up. Hence nothing here can be
// early, lose a wake-up or hang: without the timerfd the leader is as late as with a
// coarseSleeper. In a bubble of testing/synctest the timer is the bubble's, and the
// timerfd, which counts real time, changes nothing.
//
// The tempting way is to read the timerfd instead of a channel. The leader would be
// awake some 2 us sooner, and for less processor time, but an earlier offer and the
// end of a context would have to break into that read, and each of them could then
// be missed; and in a bubble of synctest the leader would sleep in real time.
type timerfdSleeper struct {
	coarseSleeper
	fd   int      // of file; -1 once closed
	file *os.File // closes the descriptor, also when the queue is forgotten
}

// newPreciseSleeper returns an error where the system refuses a timerfd, or the
// poller to watch it: too many open files, a sandbox, an old kernel.
func newPreciseSleeper() (sleeper, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "timerfd") // hands it to the poller, since it does not block
	if err := file.SetDeadline(time.Time{}); err != nil {
		file.Close() // the poller has not taken it: such a file has no deadlines
		return nil, err
	}
	return &timerfdSleeper{fd: fd, file: file}, nil
}

func (s *timerfdSleeper) wakeAfter(d time.Duration) <-chan time.Time {
	due := s.coarseSleeper.wakeAfter(d)
	if s.fd >= 0 && d > 0 { // 0 would disarm it
		if err := setTimerfd(s.fd, d); err != nil {
			s.close() // somebody has closed it under us
		}
	}
	return due
}

// setTimerfd makes the descriptor expire d from now, or, lest a 32-bit time overflow,
// in 68 years at the latest. A system call of 0.3 us that never blocks; there is
// nothing to retry in it.
func setTimerfd(fd int, d time.Duration) error {
	d = min(d, math.MaxInt32*time.Second)
	return unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil)
}

func (s *timerfdSleeper) precise() bool { return s.fd >= 0 }

// close is the only one who closes, and wakeAfter the only one who uses the number,
// both under the queue's lock. So it never names a descriptor of somebody else.
func (s *timerfdSleeper) close() {
	if s.fd >= 0 {
		s.fd = -1
		s.file.Close()
	}
}
