package setclock

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const envFile = "SETCLOCK_TEST"

// The test is also the process that follows, when it is told to be.
func TestMain(m *testing.M) {
	path := os.Getenv(envFile)
	if path == "" {
		os.Exit(m.Run())
	}
	if err := Follow(path); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// A process that follows sees its wall clock set, forward and back, and its monotonic
// clock go on; both go on when time passes. What asks the kernel has the system's time.
func TestFollow(t *testing.T) {
	if !Supported {
		t.Skip("not on this system")
	}
	path := os.Getenv(envFile)
	if path == "" {
		path = filepath.Join(t.TempDir(), "clock")
		c, err := New(path)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		cmd := exec.Command(os.Args[0], "-test.run=^TestFollow$", "-test.v")
		cmd.Env = append(os.Environ(), envFile+"="+path)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	c, began := &Clock{f: f}, time.Now()
	check := func(wall, passed time.Duration) {
		t.Helper()
		right, now := Real(), time.Now()
		require.WithinDuration(t, right.Add(wall+passed), now.Round(0), 10*time.Second)
		require.InDelta(t, passed.Seconds(), now.Sub(began).Seconds(), 10) // monotonic
	}
	for _, wall := range []time.Duration{0, time.Hour, 25 * time.Hour, -40 * time.Second, -3 * time.Hour, 0} {
		require.NoError(t, c.Set(wall))
		check(wall, 0)
	}
	late := time.NewTimer(time.Hour)
	require.NoError(t, c.Pass(61*time.Minute))
	require.NoError(t, c.Set(-time.Minute))
	require.NoError(t, c.Pass(time.Hour))
	check(-time.Minute, 121*time.Minute)
	<-late.C
	require.Panics(t, func() { c.Pass(-time.Second) })
}
