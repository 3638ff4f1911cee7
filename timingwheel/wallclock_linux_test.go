package timingwheel

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/internal/wallclock"
	"github.com/tickwheel/tickwheel/internal/wallclock/wallclocktest"
)

// In real time: the system's notice reaches a job whose wall clock was set.
func TestNoticeReachesAJob(t *testing.T) {
	w := New()
	defer w.Stop()
	var step atomic.Int64
	w.attachment().wall = func() time.Time { return time.Now().Add(time.Duration(step.Load())) }
	ran := make(chan bool, 10)
	job := mustJob(t)(w.ScheduleFunc(at(time.Now().Add(24*time.Hour)), func() { ran <- true }))
	before := w.Stats().Wakeups
	wallclocktest.Notify(t) // nothing has changed
	time.Sleep(5 * time.Millisecond)
	require.Empty(t, ran)
	step.Store(int64(25 * time.Hour))
	start := time.Now()
	wallclocktest.Notify(t)
	<-ran
	t.Logf("ran %v after the notice, after %d wake-ups", time.Since(start), w.Stats().Wakeups-before)
	<-job.Done()
	waitUntil(t, func() bool { return len(wallclocktest.Notices(t)) == 0 })
}

// inChild runs a test in a process of its own, and reports whether this is the child.
func inChild(t *testing.T, through ...string) bool {
	const child = "TIMINGWHEEL_TEST_CHILD"
	if os.Getenv(child) == t.Name() {
		return true
	}
	args := append(through, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=1m")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), child+"="+t.Name())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "PASS: "+t.Name())
	return false
}

// Without a descriptor, a wheel of the option works as one without it, and says so. Jobs look
// at the wall clock once a minute.
func TestSuspendedTimeWithoutDescriptors(t *testing.T) {
	if !inChild(t) {
		return
	}
	stop, err := wallclock.Watch(func(error) {}) // has the poller opened too, which the runtime cannot do without
	require.NoError(t, err)
	stop()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 0
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) // a profile of coverage is still to be written

	var log bytes.Buffer
	w := New(WithSuspendedTime(), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.Contains(t, log.String(), `msg="timingwheel: suspended time is not counted" error=`)
	require.False(t, w.Stats().CountsSuspends)
	New(WithSuspendedTime()).Stop() // nobody to tell
	w.Sleep(5 * time.Millisecond)
	job := mustJob(t)(w.ScheduleFunc(at(time.Now().Add(24*time.Hour)), noop))
	require.Equal(t, lookInterval, job.calendar.look)
	near := make(chan bool)
	mustJob(t)(w.ScheduleFunc(at(time.Now().Add(10*time.Millisecond)), func() { close(near) }))
	<-near
	w.Stop()
}

// In a namespace of time, the clock that counts suspends is days away from the monotonic one
// from the beginning. Only what is added later counts.
func TestSuspendedTimeInANamespace(t *testing.T) {
	unshare := []string{"unshare", "--time", "--boottime", "1000000", "--monotonic", "1000"}
	if out, err := exec.Command(unshare[0], append(unshare[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no namespaces of time: %v %s", err, out)
	}
	if !inChild(t, unshare...) {
		return
	}
	least, _, err := wallclock.Suspended()
	require.NoError(t, err)
	require.Greater(t, least, 998_000*time.Second, "this is the namespace")
	w := New(WithSuspendedTime())
	defer w.Stop()
	w.AfterFunc(time.Hour, func() { t.Error("early") })
	for range 10 {
		start := time.Now()
		w.Sleep(5 * time.Millisecond)
		require.GreaterOrEqual(t, time.Since(start), 5*time.Millisecond)
		wallclocktest.Notify(t)
	}
	require.True(t, w.Stats().CountsSuspends)
	require.Less(t, w.Stats().Suspended, time.Second)
}

// The goroutine that waits for notices ends with the last wheel that needs it.
func TestNoGoroutineAfterStop(t *testing.T) {
	before := runtime.NumGoroutine()
	w := New(WithSuspendedTime())
	mustJob(t)(w.ScheduleFunc(hourly, noop))
	require.Len(t, wallclocktest.Notices(t), 1)
	w.Stop()
	waitUntil(t, func() bool { return runtime.NumGoroutine() <= before && len(wallclocktest.Notices(t)) == 0 })
}
