package wallclock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/internal/wallclock/wallclocktest"
)

func watch(t *testing.T) (notices chan error, stop func()) {
	notices = make(chan error, 32) // holds all of a test, since the function must not block
	stop, err := Watch(func(err error) { notices <- err })
	require.NoError(t, err)
	t.Cleanup(stop)
	return notices, stop
}

// readers counts the goroutines that wait for notices.
func readers() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "wallclock.(*watcher).read(")
}

func waitUntil(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d readers, the descriptors %v, and these goroutines:\n%s", readers(), wallclocktest.Notices(t), stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func TestAllAreTold(t *testing.T) {
	first, stopFirst := watch(t)
	second, stopSecond := watch(t)
	require.Len(t, wallclocktest.Notices(t), 1, "one for the process")
	for range 3 {
		wallclocktest.Notify(t)
		require.NoError(t, <-first)
		require.NoError(t, <-second)
	}
	stopFirst()
	wallclocktest.Notify(t)
	require.NoError(t, <-second)
	require.Empty(t, first)

	stopSecond()
	stopSecond()
	waitUntil(t, func() bool { return readers() == 0 && len(wallclocktest.Notices(t)) == 0 })

	third, _ := watch(t)
	wallclocktest.Notify(t)
	require.NoError(t, <-third)
	require.Empty(t, second)
}

// Watches begin and end at the same time, and notices come meanwhile.
func TestWatchesBesideEachOther(t *testing.T) {
	for round, watches := range []int{500, 5000} { // in the second, the descriptor stays
		if round == 1 {
			_, stop := watch(t)
			defer stop()
		}
		watchBesideEachOther(t, watches)
		waitUntil(t, func() bool { return readers() == round && len(wallclocktest.Notices(t)) == round })
	}
}

func watchBesideEachOther(t *testing.T, watches int) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range watches {
				stop, err := Watch(func(error) {})
				if err != nil {
					t.Error(err)
					return
				}
				stop()
			}
		})
	}
	all.Go(func() {
		for range 20 {
			process.mu.Lock() // or else the descriptor may be another's by then
			wallclocktest.Notify(t)
			process.mu.Unlock()
		}
	})
	all.Wait()
}

// The goroutine that waits has not the labels of whoever watches first.
func TestReaderHasNoLabels(t *testing.T) {
	pprof.Do(t.Context(), pprof.Labels("watches", "first"), func(context.Context) { watch(t) })
	waitUntil(t, func() bool { return readers() == 1 })
	waitUntil(t, func() bool {
		var goroutines strings.Builder
		require.NoError(t, pprof.Lookup("goroutine").WriteTo(&goroutines, 1))
		for stanza := range strings.SplitSeq(goroutines.String(), "\n\n") {
			if strings.Contains(stanza, "wallclock.waitForNotice+") {
				return !strings.Contains(stanza, `"watches"`)
			}
		}
		return false
	})
}

// In a bubble there is no watch. It would own the goroutine that waits.
func TestNoWatchInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, err := Watch(func(error) {})
		if err == nil {
			stop() // or else the bubble never ends
		}
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})
}

// The notified function may call stop.
func TestStopWhenTold(t *testing.T) {
	told, stops := make(chan error, 10), make(chan func(), 1)
	stop, err := Watch(func(err error) { (<-stops)(); told <- err })
	require.NoError(t, err)
	stops <- stop
	wallclocktest.Notify(t)
	require.NoError(t, <-told)
	waitUntil(t, func() bool { return readers() == 0 && len(wallclocktest.Notices(t)) == 0 })
}

// The kernel is asked for a notice, and wakes nobody up otherwise. A program that is started has no
// descriptor. No test sets the clock.
func TestWhatTheKernelIsAskedFor(t *testing.T) {
	watch(t)
	fd := wallclocktest.Notices(t)[0]
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
	require.Zero(t, errno)
	require.NotZero(t, flags&syscall.FD_CLOEXEC)
	bytes, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	require.NoError(t, err)
	info := string(bytes)
	require.Contains(t, info, "settime flags: 03", "an absolute time, and ECANCELED when the clock is set")
	_, value, _ := strings.Cut(info, "it_value: (")
	var seconds int
	_, err = fmt.Sscanf(value, "%d", &seconds)
	require.NoError(t, err)
	require.Greater(t, seconds, 24*60*60, "it expires soon")
}

// The error that the kernel returns after a step of the clock is no failure. Any other error is
// one.
func TestFailure(t *testing.T) {
	require.NoError(t, failure(nil))
	require.NoError(t, failure(&os.PathError{Op: "read", Err: syscall.ECANCELED}))
	require.ErrorIs(t, failure(&os.PathError{Op: "read", Err: syscall.EIO}), syscall.EIO)
}

// A watch that fails tells so once, and the next one begins anew.
func TestWatchThatFails(t *testing.T) {
	first, _ := watch(t)
	process.mu.Lock()
	process.file.SetReadDeadline(time.Unix(1, 0))
	process.mu.Unlock()
	require.ErrorIs(t, <-first, os.ErrDeadlineExceeded)
	waitUntil(t, func() bool { return readers() == 0 && len(wallclocktest.Notices(t)) == 0 })

	process.mu.Lock()
	kept := len(process.all)
	process.mu.Unlock()
	require.Zero(t, kept, "of a watch that has ended")

	second, _ := watch(t) // begins anew
	wallclocktest.Notify(t)
	require.NoError(t, <-second)
	require.Empty(t, first)
}

// In a process of its own, since a limit holds for a whole process.
func TestWithoutDescriptors(t *testing.T) {
	const child = "WALLCLOCK_TEST_WITHOUT_DESCRIPTORS"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=1m")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "PASS: "+t.Name())
		return
	}
	_, stop := watch(t) // has the poller opened too, which the runtime cannot do without
	stop()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 0
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) // a profile of coverage is still to be written
	_, err := Watch(func(error) {})
	require.ErrorIs(t, err, syscall.EMFILE)
}

func TestSuspended(t *testing.T) {
	least, most, err := Suspended()
	require.NoError(t, err)
	require.LessOrEqual(t, least, most)
	for range 1000 {
		least2, most2, err := Suspended()
		require.NoError(t, err)
		require.LessOrEqual(t, least2, most)
		require.LessOrEqual(t, least, most2)
		least, most = max(least, least2), min(most, most2)
	}
	require.Less(t, most-least, time.Millisecond, "the best of a thousand")
	_, err = read(99)
	require.True(t, errors.Is(err, syscall.EINVAL))
}
