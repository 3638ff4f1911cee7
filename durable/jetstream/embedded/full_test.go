//go:build linux

package embedded_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
)

// smallDisk returns a directory with a file system of its own, of so many bytes.
func smallDisk(t *testing.T, size string) string {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("a file system cannot be mounted here: ", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// A disk that gets full, by jobs or by others, is told before the server runs into its
// end: ErrFull, and it goes on when there is room. Nothing that was accepted is lost.
func TestFullDisk(t *testing.T) {
	disk := smallDisk(t, "24m")
	small := embedded.With(jetstream.Buckets(250*time.Millisecond, 10*time.Second, 2*time.Second, time.Second))
	dir := filepath.Join(disk, "store")
	e, q := open(t, dir, small)
	accepted := map[durable.Ref]bool{}
	add := func() error {
		ref, err := q.Add(within(t), durable.Job{Kind: "k", After: 2 * time.Second, Payload: make([]byte, 50<<10)})
		if err == nil {
			accepted[ref] = true
		}
		return err
	}
	others := filepath.Join(disk, "others")
	require.NoError(t, add())
	require.NoError(t, os.WriteFile(others, make([]byte, 22<<20), 0o600))
	require.Eventually(t, func() bool { return errors.Is(add(), durable.ErrFull) }, patience, 10*time.Millisecond, "others fill the disk")
	require.NoError(t, os.Remove(others))
	require.Eventually(t, func() bool { return add() == nil }, patience, 100*time.Millisecond, "there is room again")

	var err error
	for range 2000 {
		if err = add(); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, durable.ErrFull, "jobs fill the disk")
	require.Greater(t, len(accepted), 100)
	require.NoError(t, e.Close())
	_, q = open(t, dir, small)
	require.ErrorIs(t, add(), durable.ErrFull, "it is opened though it is full")
	runAll(t, q, accepted, add)
}

// runAll runs what was accepted, and more that is added when there is room.
func runAll(t *testing.T, q *durable.Queue, accepted map[durable.Ref]bool, add func() error) {
	ran, drain := run(t, q)
	require.Eventually(t, func() bool { return add() == nil }, patience, 100*time.Millisecond, "there is room again")
	for len(accepted) > 0 {
		select {
		case ref := <-ran:
			delete(accepted, ref) // one may run twice when the lease of a slow machine is over
		case <-time.After(patience):
			require.FailNow(t, "lost", "%d", len(accepted))
		}
	}
	drain()
}
