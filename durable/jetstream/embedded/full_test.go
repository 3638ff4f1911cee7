//go:build linux

package embedded_test

import (
	"context"
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
	small := embedded.WithJetStream(jetstream.WithBuckets(jetstream.Buckets{Near: 250 * time.Millisecond, Far: 10 * time.Second, Lead: 2 * time.Second, Settle: time.Second}))
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

// filled is a queue on a small disk that works on jobs of 50 KB.
type filled struct {
	t        *testing.T
	dir      string
	others   *os.File // a file of others on that disk
	opts     []embedded.Option
	q        *durable.Queue
	ended    chan error // of Run
	accepted map[durable.Ref]bool
}

// newFilled returns one whose disk is full, after it has worked for a while.
func newFilled(t *testing.T, opts ...embedded.Option) *filled {
	disk := smallDisk(t, "32m")
	f := &filled{t: t, dir: filepath.Join(disk, "store"), ended: make(chan error, 1), accepted: map[durable.Ref]bool{}}
	f.opts = append(opts, embedded.WithJetStream(jetstream.WithBuckets(jetstream.Buckets{Near: 250 * time.Millisecond, Far: 10 * time.Second, Lead: 2 * time.Second, Settle: time.Second})))
	var err error
	f.others, err = os.Create(filepath.Join(disk, "others"))
	require.NoError(t, err)
	t.Cleanup(func() { f.others.Close() })
	_, f.q = open(t, f.dir, f.opts...)
	f.q.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
	go func() { f.ended <- f.q.Run(t.Context()) }()
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) || len(f.accepted) == 0; time.Sleep(20 * time.Millisecond) {
		_ = f.add()
	}
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); { // buckets are over, and want to be purged
		f.fill()
		_ = f.add()
	}
	return f
}

// fill takes all that is left.
func (f *filled) fill() {
	for piece := make([]byte, 4<<10); ; {
		if _, err := f.others.Write(piece); err != nil {
			return
		}
	}
}

// add adds a job, and returns why that was not accepted within a second.
func (f *filled) add() error {
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
	defer cancel()
	ref, err := f.q.Add(ctx, durable.Job{Kind: "k", After: 2 * time.Second, Payload: make([]byte, 50<<10)})
	if err == nil {
		f.accepted[ref] = true
	}
	return err
}

// eventually waits until an error is one.
func (f *filled) eventually(want error, of func() error) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return errors.Is(of(), want) }, patience, 10*time.Millisecond)
}

func (f *filled) health() error { return f.q.Health(within(f.t)) }

// allRun waits until all that was accepted has run.
func (f *filled) allRun() {
	for ref := range f.accepted {
		f.eventually(durable.ErrNotFound, func() error { _, err := f.q.Get(within(f.t), ref); return err })
	}
}

// While a disk has no room at all nothing is written, and Health says why. When there is
// room again all goes on.
func TestDiskWithoutRoom(t *testing.T) {
	f := newFilled(t)
	f.eventually(durable.ErrFull, func() error { f.fill(); return f.health() })
	f.eventually(durable.ErrFull, func() error { f.fill(); return f.add() })
	require.NoError(t, f.others.Truncate(0))
	f.eventually(nil, f.add)
	f.eventually(nil, f.health)
	f.allRun()
	require.Empty(t, f.ended)
	require.NoError(t, f.q.Close())
}

// A disk without a byte is full, whatever the first thing is that finds no room there.
func TestOpenOnDiskWithoutAByte(t *testing.T) {
	disk := smallDisk(t, "16m")
	there, empty := filepath.Join(disk, "there"), filepath.Join(disk, "empty")
	e, err := embedded.Open(within(t), there)
	require.NoError(t, err)
	require.NoError(t, e.Close())
	require.NoError(t, os.Remove(filepath.Join(there, "owner")))
	require.NoError(t, os.Mkdir(empty, 0o700))
	require.Error(t, os.WriteFile(filepath.Join(disk, "others"), make([]byte, 16<<20), 0o600))
	for _, dir := range []string{there, empty} {
		_, err := embedded.Open(within(t), dir)
		require.ErrorIs(t, err, durable.ErrFull)
	}
}

// A server one of whose writes has failed, since others took the room meanwhile, ends Run with
// ErrStorage. All else returns, too, and the store has all that was accepted.
func TestFailedWrite(t *testing.T) {
	f := newFilled(t, embedded.Blind())
	for end := time.Now().Add(patience); len(f.ended) == 0 && time.Now().Before(end); {
		f.fill()
		_ = f.add()
	}
	require.NotEmpty(t, f.ended, "Run goes on")
	require.ErrorIs(t, <-f.ended, durable.ErrStorage)
	f.eventually(durable.ErrStorage, f.health)
	f.eventually(durable.ErrStorage, f.add)
	closed := make(chan error, 1)
	go func() { closed <- f.q.Close() }()
	select {
	case err := <-closed:
		t.Log("Close:", err) // the server ends, or it does not
	case <-time.After(patience):
		t.Fatal("Close does not return")
	}
	dir := filepath.Join(t.TempDir(), "store") // as another process would have it
	require.NoError(t, os.CopyFS(dir, os.DirFS(f.dir)))
	_, f.q = open(t, dir, f.opts[1])
	_, drain := run(t, f.q)
	f.allRun()
	drain()
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

// A disk on which no directory can be made is full, too.
func TestOpenWithoutRoomForADirectory(t *testing.T) {
	disk := smallDisk(t, "16m,nr_inodes=1") // the one is that of the disk itself
	_, err := embedded.Open(within(t), filepath.Join(disk, "store"))
	require.ErrorIs(t, err, durable.ErrFull)
}
