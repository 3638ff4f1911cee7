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
// clock go on. What does not ask the vDSO has the system's time.
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
	c, began := &Clock{f}, time.Now()
	for _, shift := range []time.Duration{0, time.Hour, 25 * time.Hour, -40 * time.Second, -3 * time.Hour, 0} {
		require.NoError(t, c.Set(shift))
		right, now := Real(), time.Now()
		require.WithinDuration(t, right.Add(shift), now.Round(0), 10*time.Second)
		require.Less(t, now.Sub(began).Abs(), time.Minute) // monotonic
		require.Less(t, time.Since(now).Abs(), time.Minute)
	}
}
