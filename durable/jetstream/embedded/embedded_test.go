package embedded_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
)

// patience limits how long a test waits for an event. It is a bound, not a measure.
const patience = 5 * time.Minute

// within returns a context that ends with patience: an engine tries for as long as it may.
// Without a deadline it asks once.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func open(t testing.TB, dir string, opts ...embedded.Option) (driver.Engine, *durable.Queue) {
	t.Helper()
	e, err := embedded.Open(within(t), dir, opts...)
	require.NoError(t, err)
	q, err := durable.Open(within(t), e)
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	return e, q
}

// run runs jobs of the kind k and returns a counter's channel and what drains.
func run(t testing.TB, q *durable.Queue) (<-chan durable.Ref, func()) {
	ran := make(chan durable.Ref, 1<<16)
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error { ran <- a.Ref; return nil })
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	return ran, func() { stop(); require.NoError(t, <-done) }
}

func TestTwoProcessesOnOneDirectory(t *testing.T) {
	dir := t.TempDir()
	e, _ := open(t, dir)
	began := time.Now()
	_, err := embedded.Open(within(t), dir)
	require.ErrorIs(t, err, durable.ErrLocked)
	require.ErrorContains(t, err, "another engine of this process")
	_, err = embedded.Open(within(t), dir+"/../"+filepath.Base(dir), embedded.WithJetStream(jetstream.WithQueue("another")))
	require.ErrorContains(t, err, "another engine of this process: use one engine for a directory")
	require.Less(t, time.Since(began), patience/2, "at once: it does not wait for the other")

	cmd := exec.Command(os.Args[0], "-test.run=^TestTwoProcessesOnOneDirectory$")
	if os.Getenv("LOCKED_DIR") == "" {
		cmd.Env = append(os.Environ(), "LOCKED_DIR="+dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	} else {
		_, err := embedded.Open(within(t), os.Getenv("LOCKED_DIR"))
		require.ErrorContains(t, err, "durable: store is locked: "+os.Getenv("LOCKED_DIR")+" is open in another process")
	}
	require.NoError(t, e.Close())
	_, q := open(t, dir)
	_, err = q.Add(within(t), durable.Job{Kind: "k"})
	require.NoError(t, err)
}

// A store may be opened with another limit than before, also with less than it has, and with several
// partitions, also without their number.
func TestAnotherMaxStore(t *testing.T) {
	for partitions := 1; partitions <= 3; partitions += 2 {
		dir, stored := t.TempDir(), 0
		opts := []embedded.Option{embedded.WithJetStream(jetstream.WithPartitions(partitions))}
		for _, size := range []int64{64 << 20, 32 << 30, 16 << 20, 8 << 20} {
			_, q := open(t, dir, append(opts, embedded.WithMaxStore(size))...)
			if opts = nil; stored == 0 {
				refs, err := q.AddMany(within(t), slices.Repeat([]durable.Job{{Kind: "k", Payload: make([]byte, 200<<10)}}, 100)...)
				require.NoError(t, err)
				stored = len(refs)
			}
			if size == 8<<20 {
				_, err := q.Add(within(t), durable.Job{Kind: "k"})
				require.ErrorIs(t, err, durable.ErrFull)
				ran, drain := run(t, q)
				for range stored {
					<-ran
				}
				drain()
			}
			require.NoError(t, q.Close())
		}
	}
}

// A full store refuses more by name, goes on running what it has, and takes jobs again
// when there is room. Nothing that was accepted is lost.
func TestFullStore(t *testing.T) {
	small := embedded.WithJetStream(jetstream.WithBuckets(jetstream.Buckets{Near: 250 * time.Millisecond, Far: 10 * time.Second, Lead: 2 * time.Second, Settle: time.Second}))
	_, q := open(t, t.TempDir(), embedded.WithMaxStore(8<<20), small)
	accepted := map[durable.Ref]bool{}
	add := func() error {
		ref, err := q.Add(within(t), durable.Job{Kind: "k", After: 2 * time.Second, Payload: make([]byte, 50<<10)})
		if err == nil {
			accepted[ref] = true
		}
		return err
	}
	var err error
	for range 1000 {
		if err = add(); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, durable.ErrFull)
	require.Greater(t, len(accepted), 50)
	ran, drain := run(t, q)
	require.Eventually(t, func() bool { return add() == nil }, patience, 100*time.Millisecond, "there is room again")
	for range len(accepted) {
		select {
		case ref := <-ran:
			require.True(t, accepted[ref])
			delete(accepted, ref)
		case <-time.After(patience):
			require.FailNow(t, "lost", "%d", len(accepted))
		}
	}
	drain()
}

// Canceled jobs give their room back: those that are far from due at once and without a worker, the
// others when a worker removes them or closes their buckets.
func TestCanceledGiveRoomBack(t *testing.T) {
	for name, after := range map[string]time.Duration{"far": 24 * time.Hour, "near": time.Second} {
		t.Run(name, func(t *testing.T) {
			small := embedded.WithJetStream(jetstream.WithBuckets(jetstream.Buckets{Near: 250 * time.Millisecond, Far: 10 * time.Second, Lead: 2 * time.Second, Settle: time.Second}))
			_, q := open(t, t.TempDir(), embedded.WithMaxStore(8<<20), small)
			add := func() (durable.Ref, error) {
				return q.Add(within(t), durable.Job{Kind: "k", After: after, Payload: make([]byte, 50<<10)})
			}
			var refs []durable.Ref
			ref, err := add()
			for ; err == nil && len(refs) < 1000; ref, err = add() {
				refs = append(refs, ref)
			}
			require.ErrorIs(t, err, durable.ErrFull)
			require.Greater(t, len(refs), 50)
			for _, ref := range refs {
				ok, err := q.Cancel(within(t), ref)
				require.NoError(t, err)
				require.True(t, ok)
			}
			if name == "near" {
				_, drain := run(t, q)
				defer drain()
			}
			again := 0
			require.Eventually(t, func() bool {
				for again < len(refs)/2 {
					if _, err := add(); err != nil {
						return false
					}
					again++
				}
				return true
			}, 2*time.Minute, 100*time.Millisecond, "there is room again")
		})
	}
}

// What a power cut may do to the end of the last file costs no job that was stored
// before, and the store opens.
func TestTornBlock(t *testing.T) {
	for how, damage := range map[string]func(f *os.File, size int64) error{
		"cut":     func(f *os.File, size int64) error { return f.Truncate(size - 7) },
		"garbled": func(f *os.File, size int64) error { return writeAt(f, size-20, 20, 0xa5) },
		"zeros":   func(f *os.File, size int64) error { return writeAt(f, size-20, 4096, 0) },
		"more":    func(f *os.File, size int64) error { return writeAt(f, size, 4096, 0) },
	} {
		t.Run(how, func(t *testing.T) { tornBlock(t, damage, how == "more") })
	}
}

func writeAt(f *os.File, at int64, n int, b byte) error {
	_, err := f.WriteAt(bytes.Repeat([]byte{b}, n), at)
	return err
}

func tornBlock(t *testing.T, damage func(*os.File, int64) error, whole bool) {
	dir := t.TempDir()
	_, q := open(t, dir)
	var refs []durable.Ref
	for range 50 { // a commit each
		ref, err := q.Add(within(t), durable.Job{Kind: "k", After: time.Hour})
		require.NoError(t, err)
		refs = append(refs, ref)
	}
	require.NoError(t, q.Close())
	f, err := os.OpenFile(lastBlock(t, dir), os.O_RDWR, 0)
	require.NoError(t, err)
	fi, err := f.Stat()
	require.NoError(t, err)
	require.NoError(t, damage(f, fi.Size()))
	require.NoError(t, f.Close())
	_, q = open(t, dir)
	for _, ref := range refs[:49] {
		_, err := q.Get(within(t), ref)
		require.NoError(t, err)
	}
	_, err = q.Get(within(t), refs[49])
	if whole {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, durable.ErrNotFound, "the last message is torn")
	}
	ref, err := q.Add(within(t), durable.Job{Kind: "k"})
	require.NoError(t, err)
	ran, drain := run(t, q)
	require.Equal(t, ref, <-ran)
	drain()
}

// lastBlock returns the newest file of messages, and removes what only a clean end
// writes.
func lastBlock(t *testing.T, dir string) (last string) {
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".blk") && strings.Contains(path, "msgs") {
			last = path
		}
		if d.Name() == "index.db" || d.Name() == "closed.json" {
			require.NoError(t, os.Remove(path))
		}
		return err
	}))
	require.NotEmpty(t, last)
	return last
}

// A process that was killed while it made the stream may leave a store that the server
// passes over at the next start. It is made whole, and Refs stay what they were.
func TestKilledWhileStreamIsMade(t *testing.T) {
	dir := t.TempDir()
	_, q := open(t, dir)
	ref, err := q.Add(within(t), durable.Job{Kind: "k", After: time.Hour})
	require.NoError(t, err)
	require.NoError(t, q.Close())
	sums, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*", "meta.sum"))
	require.NoError(t, err)
	require.Len(t, sums, 1)
	require.NoError(t, os.Remove(sums[0]))
	for range 2 {
		_, q = open(t, dir)
		require.FileExists(t, sums[0])
		info, err := q.Get(within(t), ref)
		require.NoError(t, err)
		require.Equal(t, ref, info.Ref)
		require.NoError(t, q.Close())
	}
}

func TestUnusableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := embedded.Open(within(t), file)
	require.ErrorIs(t, err, durable.ErrStorage)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = embedded.Open(ctx, t.TempDir())
	require.Error(t, err)
	require.PanicsWithValue(t, "embedded: WithMaxStore(1): less than 8 MiB", func() { embedded.Open(within(t), t.TempDir(), embedded.WithMaxStore(1)) })
}

// A process that was killed leaves no leases: what ran then runs at once.
func TestNoLeaseOfTheDead(t *testing.T) {
	dir := t.TempDir()
	e, err := embedded.Open(within(t), dir)
	require.NoError(t, err)
	q, err := durable.Open(within(t), e, durable.WithLease(10*time.Minute))
	require.NoError(t, err)
	w, err := e.Work(within(t), driver.WorkConfig{Name: "w", Kinds: driver.NewKindSet([]string{"k"}), Lease: 10 * time.Minute, Ahead: time.Second, Retention: time.Hour})
	require.NoError(t, err)
	ref, err := q.Add(within(t), durable.Job{Kind: "k"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	fed := make(chan error, 1)
	claimed := make(chan driver.ClaimResult, 1)
	go func() {
		fed <- w.Fetch(ctx, func(hs []*driver.Delivery) { claimed <- claim(ctx, w, hs[0]) })
	}()
	require.Equal(t, driver.ClaimResult{Status: driver.Granted, Attempt: 1}, <-claimed)
	stop()
	require.NoError(t, <-fed)
	require.NoError(t, q.Close())
	_, q = open(t, dir)
	ran, drain := run(t, q)
	select {
	case got := <-ran:
		require.Equal(t, ref, got)
	case <-time.After(patience):
		require.Fail(t, "it waits for the lease of a process that is gone")
	}
	drain()
}

// claim claims a job, as soon as the engine can tell.
func claim(ctx context.Context, w driver.Worker, h *driver.Delivery) (v driver.ClaimResult) {
	for ctx.Err() == nil {
		if v = w.Claim(ctx, []*driver.Delivery{h})[0]; v.Status != driver.RetryLater {
			break
		}
		time.Sleep(min(v.After, 50*time.Millisecond))
	}
	return v
}

func TestLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 3 {
		e, err := embedded.Open(within(t), t.TempDir())
		require.NoError(t, err)
		q, err := durable.Open(within(t), e)
		require.NoError(t, err)
		ran, drain := run(t, q)
		_, err = q.Add(within(t), durable.Job{Kind: "k"})
		require.NoError(t, err)
		<-ran
		drain()
		require.NoError(t, q.Close())
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, patience, 20*time.Millisecond, "%s", stacks())
}

func stacks() []byte {
	b := make([]byte, 1<<20)
	b = b[:runtime.Stack(b, true)]
	return bytes.TrimSpace(b)
}

// The embedded engine does the same, with every write synced.
type store struct {
	dir string
	e   driver.Engine
}

func (s *store) Open(t testing.TB) driver.Engine {
	small := jetstream.WithBuckets(jetstream.Buckets{Near: 250 * time.Millisecond, Far: 2 * time.Second, Lead: time.Second, Settle: time.Second})
	e, err := embedded.Open(context.Background(), s.dir, embedded.WithJetStream(small))
	require.NoError(t, err)
	s.e = e
	t.Cleanup(func() { e.Close() })
	return e
}

func (s *store) Restart(t testing.TB) { require.NoError(t, s.e.Close()) }

func TestConformanceOfOneProcess(t *testing.T) {
	enginetest.RunOnly(t, func(t testing.TB) enginetest.Store { return &store{dir: t.TempDir()} },
		"InsertRunGone", "Batch", "Restart", "Reschedule", "Retries", "Redrive", "NeverEarly", "ScheduleMissed",
		"OnKey", "PushedBack", "FreeWhenBegun", "Signal", "DueKeepsItsTurn")
}
