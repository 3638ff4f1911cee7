package wallclock

import (
	"errors"
	"math"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// itimerspec is the kernel's struct of that name.
type itimerspec struct{ interval, value syscall.Timespec }

// openNotice returns a timerfd that is set to a time far off. A read of it fails with
// ECANCELED when the wall clock is set, and when the machine resumes, since the kernel then
// sets the wall clock forward. In 2038 the timer expires, which is a notice too many.
func openNotice() (*os.File, error) {
	const (
		clockRealtime = 0
		absolute      = 1 << 0
		cancelOnSet   = 1 << 1
	)
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, clockRealtime, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return nil, os.NewSyscallError("timerfd_create", errno)
	}
	file := os.NewFile(fd, "timerfd") // hands it to the poller, since it does not block
	if err := file.SetDeadline(time.Time{}); err != nil {
		file.Close() // the poller refused it: a read would take a thread
		return nil, err
	}
	never := itimerspec{value: syscall.Timespec{Sec: math.MaxInt32}}
	_, _, errno = syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, fd, absolute|cancelOnSet, uintptr(unsafe.Pointer(&never)), 0, 0, 0)
	if errno != 0 && errno != syscall.ECANCELED { // ECANCELED: it is set, and so was the clock just now
		file.Close()
		return nil, os.NewSyscallError("timerfd_settime", errno)
	}
	return file, nil
}

// waitForNotice returns nil when there is something to tell.
func waitForNotice(file *os.File) error {
	var expirations [8]byte
	_, err := file.Read(expirations[:])
	return failure(err)
}

// failure returns nil for the error that says that the wall clock was set.
func failure(err error) error {
	if errors.Is(err, syscall.ECANCELED) {
		return nil
	}
	return err
}

// Suspended returns for how long the machine has been suspended since it booted, plus a
// constant of the process: at least and at most, some microseconds apart. It returns an error
// where the system does not tell.
func Suspended() (least, most time.Duration, err error) {
	const monotonic, boottime = 1, 7
	least, most = math.MinInt64, math.MaxInt64
	for range 3 { // the thread may lose its processor between two readings
		before, err := read(monotonic)
		boot, err2 := read(boottime)
		after, err3 := read(monotonic)
		if err := errors.Join(err, err2, err3); err != nil {
			return 0, 0, err
		}
		least, most = max(least, boot-after), min(most, boot-before)
	}
	return least, most, nil
}

// read returns the time of a clock. It goes past the vDSO, and takes 0.2 us.
func read(clock uintptr) (time.Duration, error) {
	var at syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&at)), 0)
	if errno != 0 {
		return 0, os.NewSyscallError("clock_gettime", errno)
	}
	return time.Duration(at.Nano()), nil
}
