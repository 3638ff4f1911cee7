package jetstream_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// counted runs a queue whose handler counts what has run.
type counted struct {
	*durable.Queue
	stop func()
	mu   sync.Mutex
	runs map[durable.Ref]int
}

func count(t testing.TB, e driver.Engine) *counted {
	q, err := durable.Open(within(t), e)
	require.NoError(t, err)
	c := &counted{Queue: q, runs: map[durable.Ref]int{}}
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.runs[a.Ref]++
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	c.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, q.Close())
	})
	t.Cleanup(c.stop)
	return c
}

func (c *counted) ran() []durable.Ref {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.runs))
}

// load adds jobs until stop is called, which returns the accepted ones.
func load(t testing.TB, q *durable.Queue) (accepted func() int, stop func() []durable.Ref) {
	ctx, cancel := context.WithCancel(within(t))
	var mu sync.Mutex
	var refs []durable.Ref
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				time.Sleep(5 * time.Millisecond) // or a slow backup would have ever more to copy
				got, err := q.AddMany(ctx, durable.Job{Kind: "k", After: 400 * time.Millisecond}, durable.Job{Kind: "far", After: time.Hour, Key: fmt.Sprint(i, n)})
				if err == nil {
					mu.Lock()
					refs = append(refs, got...)
					mu.Unlock()
				}
			}
		})
	}
	accepted = func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(refs)
	}
	return accepted, func() []durable.Ref { cancel(); callers.Wait(); return refs }
}

// requireAll requires that of jobs that were accepted before a backup each has run before
// it, or waits in the copy or has run there.
func requireAll(t testing.TB, refs []durable.Ref, before []durable.Ref, copied *counted) {
	ran := map[durable.Ref]bool{}
	for _, ref := range before {
		ran[ref] = true
	}
	waits := 0
	for _, ref := range refs {
		if ran[ref] {
			continue
		}
		require.Eventually(t, func() bool {
			info, err := copied.Get(within(t), ref)
			if err == nil && info.Job.Kind == "far" {
				waits++
				return true
			}
			return slices.Contains(copied.ran(), ref)
		}, patience, 10*time.Millisecond, "%s is lost", ref)
	}
	require.Positive(t, waits)
}

// restore does what BACKUP.md says: a server that is busy for five seconds gives up, and then it is called again.
// A minute of silence ends it, as it ends Backup; all of it may take longer: each 8 KB are answered.
func restore(t testing.TB, nc *nats.Conn, dir string, opts ...jetstream.Option) {
	js, err := nc.JetStream()
	require.NoError(t, err)
	for range 5 {
		if err = jetstream.Restore(t.Context(), nc, dir, opts...); !errors.Is(err, nats.ErrNoResponders) {
			break
		}
		t.Log(err)
		for partition := range 2 {
			_ = js.DeleteStream(fmt.Sprint("TW_default_", partition))
		}
	}
	if err != nil && strings.Contains(err.Error(), "this needs NATS 2.15.0") {
		t.Skip(err)
	}
	require.NoError(t, err)
}

// A backup under load is of one moment: on another server each job that was accepted
// before is there, or had run. The original goes on.
func TestBackup(t *testing.T) {
	t.Parallel()
	from, to := newStore(t, jetstream.WithPartitions(2)), newStore(t)
	q := count(t, from.Open(t))
	large := make([]byte, durable.MaxPayload) // more than the server sends without an answer
	for range 80 {
		rand.Read(large)
		_, err := q.AddMany(within(t), durable.Job{Kind: "far", After: time.Hour, Payload: large})
		require.NoError(t, err)
	}
	accepted, stop := load(t, q.Queue)
	require.Eventually(t, func() bool { return accepted() > 400 && len(q.ran()) > 20 }, patience, time.Millisecond)
	dir := filepath.Join(t.TempDir(), "monday")
	least := accepted()
	require.NoError(t, jetstream.Backup(t.Context(), from.connect(t), dir))
	ran := q.ran()
	refs := stop()
	q.stop()

	nc := to.connect(t)
	restore(t, nc, dir)
	e, err := jetstream.Connect(within(t), nc, jetstream.WithExistingOnly())
	require.NoError(t, err)
	requireAll(t, refs[:least], ran, count(t, e))

	require.ErrorIs(t, jetstream.Backup(within(t), from.connect(t), dir), os.ErrExist)
	require.ErrorContains(t, jetstream.Restore(within(t), nc, dir), "10130")
	require.ErrorIs(t, jetstream.Backup(within(t), nc, t.TempDir(), jetstream.WithQueue("other")), jetstream.ErrNoQueue)
	require.ErrorIs(t, jetstream.Restore(within(t), nc, dir, jetstream.WithQueue("other")), os.ErrNotExist)
	require.ErrorContains(t, jetstream.Restore(within(t), newStore(t).connect(t), dir, jetstream.WithReplicas(3)), "replicas > 1")
	denied := denying(t, []string{"TW_default_0.b"}, nil)
	requireDenied(t, "TW_default_0.b", func() error { return jetstream.Backup(within(t), denied, t.TempDir()) })
	require.PanicsWithValue(t, "jetstream: Backup: nil connection", func() { jetstream.Backup(t.Context(), nil, dir) })
	require.PanicsWithValue(t, "jetstream: Restore: nil Option", func() { jetstream.Restore(t.Context(), &nats.Conn{}, dir, nil) })
}

// A backup has each job, also one that is moved while it is made: its message is removed then from
// where it was, and comes after all that was there when the backup began.
func TestBackupWhileJobsMove(t *testing.T) {
	t.Parallel()
	s, dir := newStore(t), filepath.Join(t.TempDir(), "monday")
	q := count(t, s.Open(t))
	large := make([]byte, durable.MaxPayload)
	for range 60 {
		rand.Read(large)
		_, err := q.Add(within(t), durable.Job{Kind: "far", After: time.Hour, Payload: large})
		require.NoError(t, err)
	}
	refs, err := q.AddMany(within(t), durable.Job{Kind: "far", After: 2 * time.Hour}, durable.Job{Kind: "far", After: 2 * time.Hour})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(within(t))
	var moving sync.WaitGroup
	for _, ref := range refs {
		moving.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = q.Reschedule(ctx, ref, time.Now().Add(3*time.Hour+time.Duration(n)*time.Second))
			}
		})
	}
	require.NoError(t, jetstream.Backup(t.Context(), s.connect(t), dir))
	stop()
	moving.Wait()

	to := newStore(t)
	restore(t, to.connect(t), dir)
	e, err := jetstream.Connect(within(t), to.connect(t), jetstream.WithExistingOnly())
	require.NoError(t, err)
	there := waiting(t, count(t, e).Queue)
	for _, ref := range refs {
		require.True(t, there[ref], "%s is lost", ref)
	}
	require.Equal(t, 62, len(there))
}

// A restore that fails leaves no part of a queue, which workers would take for all of it.
func TestRestoreLeavesNoPart(t *testing.T) {
	t.Parallel()
	s, dir := newStore(t), filepath.Join(t.TempDir(), "monday")
	q := count(t, s.Open(t))
	_, err := q.AddMany(within(t), slices.Repeat([]durable.Job{{Kind: "far", After: time.Hour}}, 100)...)
	require.NoError(t, err)
	require.NoError(t, jetstream.Backup(t.Context(), s.connect(t), dir))
	file := filepath.Join(dir, "TW_default_0", "stream.tar.s2")
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, whole[:len(whole)/2], 0o600))

	nc := newStore(t).connect(t)
	require.Error(t, jetstream.Restore(within(t), nc, dir))
	_, err = jetstream.Connect(within(t), nc, jetstream.WithExistingOnly())
	require.ErrorIs(t, err, jetstream.ErrNoQueue)
	require.NoError(t, os.WriteFile(file, whole, 0o600))
	restore(t, nc, dir)
}

// Workers that live obey the limits of a backup that is restored below them, also where it is
// from before any limit was set.
func TestRestoreUnderWorkers(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{false, true} {
		t.Run(fmt.Sprintf("backup before any limit: %v", before), func(t *testing.T) {
			t.Parallel()
			s, dir := newStore(t), filepath.Join(t.TempDir(), "monday")
			q, nc := count(t, s.Open(t)), s.connect(t)
			if !before {
				require.NoError(t, q.SetLimit(within(t), "one", durable.Limit{Kind: "k", Running: 1}))
			}
			require.NoError(t, jetstream.Backup(within(t), nc, dir))
			require.NoError(t, q.SetLimit(within(t), "one", durable.Limit{Kind: "k", Running: 2}))
			run := func(n int) {
				had := len(q.ran())
				for range n {
					_, err := q.Add(within(t), durable.Job{Kind: "k"})
					require.NoError(t, err)
				}
				require.Eventually(t, func() bool { return len(q.ran()) == had+n }, patience, time.Millisecond)
			}
			run(3) // so that the workers know the second limit

			js, err := nc.JetStream()
			require.NoError(t, err)
			require.NoError(t, js.DeleteStream("TW_default_0"))
			restore(t, nc, dir)
			run(20)
			var running []int
			for l, err := range q.Limits(within(t)) {
				require.NoError(t, err)
				running = append(running, l.Running)
			}
			require.Equal(t, map[bool][]int{false: {1}, true: nil}[before], running)
		})
	}
}

// A backup of three replicas is restored on one server, with WithReplicas(1). Programs that ask for
// three are refused there, and others work.
func TestRestoreThreeOnOne(t *testing.T) {
	t.Parallel()
	c, dir := newCluster(t), filepath.Join(t.TempDir(), "monday")
	q := count(t, c.Open(t))
	_, err := q.AddMany(within(t), durable.Job{Kind: "k", After: time.Hour}, durable.Job{Kind: "k", After: time.Hour})
	require.NoError(t, err)
	require.NoError(t, jetstream.Backup(t.Context(), c.connectTo(t, 0), dir))

	nc := newStore(t).connect(t)
	restore(t, nc, dir, jetstream.WithReplicas(1))
	_, err = jetstream.Connect(within(t), nc, jetstream.WithReplicas(3))
	require.ErrorContains(t, err, "Replicas: the stream has 1, the program asks for 3")
	e, err := jetstream.Connect(within(t), nc)
	require.NoError(t, err)
	require.Len(t, waiting(t, count(t, e).Queue), 2)
}

// waiting returns the jobs that wait.
func waiting(t testing.TB, q *durable.Queue) map[durable.Ref]bool {
	found := map[durable.Ref]bool{}
	for info, err := range q.All(within(t), durable.Filter{State: durable.Waiting}) {
		require.NoError(t, err)
		found[info.Ref] = true
	}
	return found
}
