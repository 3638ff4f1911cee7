package delayqueue

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// timerfds counts those that the process has open.
func timerfds(t *testing.T) (n int) {
	links, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.Contains(target, "timerfd") {
			n++
		}
	}
	return n
}

func preciseQueue(t *testing.T) *DelayQueue[int] {
	q := NewPrecise[int]()
	require.True(t, q.Precise())
	t.Cleanup(q.Close)
	return q
}

// sleepsWell checks that the queue takes its time.
func sleepsWell(t *testing.T, q *DelayQueue[int]) {
	for _, d := range []time.Duration{-1, 0, 1, time.Microsecond, 2 * time.Millisecond} {
		at := time.Now().Add(d)
		q.Offer(1, at)
		_, err := q.Take(t.Context())
		require.NoError(t, err)
		require.False(t, time.Now().Before(at))
	}
}

func TestCloseGivesBackTheDescriptor(t *testing.T) {
	before := timerfds(t)
	q := preciseQueue(t)
	require.Equal(t, before+1, timerfds(t))
	sleepsWell(t, q)
	require.True(t, q.Precise())
	q.Close()
	require.Equal(t, before, timerfds(t))
	sleepsWell(t, q)
	require.Equal(t, before, timerfds(t), "a closed one opens nothing")
}

// A program that is started has no descriptor of the queue. The first sleep is on time already, and so
// is the second: the descriptor is set each time.
func TestDescriptorIsSet(t *testing.T) {
	q := preciseQueue(t)
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(q.timerfd.fd), syscall.F_GETFD, 0)
	require.Zero(t, errno)
	require.NotZero(t, flags&syscall.FD_CLOEXEC)
	q.TakeFunc(func(int) {})
	for _, d := range []time.Duration{10 * time.Hour, time.Hour} {
		q.Offer(1, time.Now().Add(d))
		info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", q.timerfd.fd))
		require.NoError(t, err)
		_, value, ok := strings.Cut(string(info), "it_value: (")
		require.True(t, ok)
		var seconds int
		_, err = fmt.Sscanf(value, "%d", &seconds)
		require.NoError(t, err)
		require.InDelta(t, d.Seconds(), seconds, 60)
	}
}

func TestForgottenQueuesGiveBackTheirDescriptors(t *testing.T) {
	before := timerfds(t)
	for range 100 {
		q := NewPrecise[int]()
		q.Offer(1, time.Now().Add(time.Microsecond))
		_, err := q.Take(t.Context())
		require.NoError(t, err)
		q.Offer(2, time.Now().Add(time.Hour))
	}
	for deadline := time.Now().Add(30 * time.Second); timerfds(t) > before; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "descriptors are left")
		runtime.GC()
	}
}

func TestChildrenDoNotInheritTheDescriptor(t *testing.T) {
	preciseQueue(t)
	require.Positive(t, timerfds(t))
	out, err := exec.Command("ls", "-l", "/proc/self/fd").CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(out), "/proc/") // the folder that ls reads
	require.NotContains(t, string(out), "timerfd")
}

// If other code closes our descriptor, the queue only loses precision.
func TestDescriptorClosedUnderIt(t *testing.T) {
	q := preciseQueue(t)
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	// Not just closed: a number that is free could become another test's.
	require.NoError(t, syscall.Dup3(int(null.Fd()), q.timerfd.fd, syscall.O_CLOEXEC))
	sleepsWell(t, q)
	require.False(t, q.Precise(), "and it says so")
}

// timeLeft returns when the descriptor expires.
func timeLeft(t *testing.T, fd int) time.Duration {
	var left itimerspec
	_, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_GETTIME, uintptr(fd), uintptr(unsafe.Pointer(&left)), 0)
	require.Zero(t, errno)
	return time.Duration(left.value.Nano())
}

// Settings of the timerfd that could be refused, or could mean "never".
func TestSetTimerfd(t *testing.T) {
	q := preciseQueue(t)
	fd := q.timerfd.fd
	for _, d := range []time.Duration{1, time.Second - 1, time.Second, 69 * 365 * 24 * time.Hour, 1<<63 - 1} {
		require.NoError(t, setTimerfd(fd, d))
		require.LessOrEqual(t, timeLeft(t, fd), d)
		if d > time.Minute {
			require.Greater(t, timeLeft(t, fd), 67*365*24*time.Hour)
		}
	}
	// A sleep of no time must not disarm the timerfd, and need not set it.
	require.NoError(t, setTimerfd(fd, time.Hour))
	for _, d := range []time.Duration{0, -time.Hour} {
		rung := make(chan int)
		q.TakeFunc(func(v int) { rung <- v })
		q.Offer(1, time.Now().Add(d))
		<-rung
	}
	require.Positive(t, timeLeft(t, fd))
}

// In a process of its own, since a limit holds for a whole process.
func TestFallsBackWhereThereIsNoDescriptor(t *testing.T) {
	const child = "DELAYQUEUE_TEST_WITHOUT_DESCRIPTORS"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=1m")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "PASS: "+t.Name())
		return
	}
	with := preciseQueue(t) // has the poller opened too, which the runtime cannot do without
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 0
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) // a profile of coverage is still to be written
	_, err := newTimerfd()
	require.ErrorIs(t, err, syscall.EMFILE)
	without := NewPrecise[int]()
	require.False(t, without.Precise(), "and it says so")
	sleepsWell(t, without)
	sleepsWell(t, with)
	require.True(t, with.Precise())
}

// A sleep toward something far off wakes no thread. The test counts the switches of the
// process. These include what else happens in the process, hence a baseline, and many
// rounds: by chance alone each passes as often as not.
func TestPreciseIsIdle(t *testing.T) {
	switches := func(q *DelayQueue[int]) int64 {
		defer q.Close() // or it would be a part of the next baseline
		q.Offer(1, time.Now().Add(time.Hour))
		go q.Take(t.Context())
		time.Sleep(10 * time.Millisecond)
		var before, after syscall.Rusage
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
		time.Sleep(300 * time.Millisecond)
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
		require.Zero(t, q.Wakeups())
		return int64(after.Nvcsw - before.Nvcsw)
	}
	var result string
	for range 20 {
		theirs, ours := switches(New[int]()), switches(preciseQueue(t))
		if ours <= theirs+2 {
			return
		}
		result = fmt.Sprintf("%d switches, and the default %d", ours, theirs)
	}
	t.Error(result)
}
