package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// lines keeps the lines of a log, by their level.
type lines struct {
	mu  sync.Mutex
	all map[slog.Level][]string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	l.all[r.Level] = append(l.all[r.Level], text)
	return nil
}

// with returns the lines of a level that have a text.
func (l *lines) with(level slog.Level, text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all[level] {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// backWorker is a Queue whose handlers wait until they are released, and that counts the attempts of each job.
type backWorker struct {
	*durable.Queue
	engine  *postgres.Engine
	log     *lines
	release chan struct{}

	mu       sync.Mutex
	attempts map[durable.Ref][]int
	of       map[string]int // the attempts of each kind
}

func newBackWorker(t testing.TB, pool *pgxpool.Pool) *backWorker {
	e, err := postgres.Connect(t.Context(), pool)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	require.NoError(t, e.Migrate(t.Context()))
	w := &backWorker{engine: e, log: &lines{all: map[slog.Level][]string{}}, release: make(chan struct{}),
		attempts: map[durable.Ref][]int{}, of: map[string]int{}}
	w.Queue, err = durable.Open(t.Context(), e, durable.WithLogger(slog.New(w.log)))
	require.NoError(t, err)
	for _, kind := range []string{"plain", "limited", "scheduled"} {
		w.Handle(kind, func(ctx context.Context, a *durable.Attempt) error {
			w.mu.Lock()
			w.attempts[a.Ref] = append(w.attempts[a.Ref], a.Number)
			w.of[a.Job.Kind]++
			w.mu.Unlock()
			select {
			case <-w.release:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}
	return w
}

func (w *backWorker) start(t testing.TB) *backWorker {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, w.Queue.Close())
	})
	return w
}

func (w *backWorker) began(kind string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of[kind]
}

// runs waits until a handler of the kind has begun n times.
func (w *backWorker) runs(t testing.TB, kind string, n int) {
	t.Helper()
	within := time.Now().Add(patience / 3)
	for w.began(kind) < n {
		require.True(t, time.Now().Before(within), "of %d attempts of kind %s only %d have begun", n, kind, w.began(kind))
		time.Sleep(10 * time.Millisecond)
	}
}

// fall is a server that falls back.
type fall struct {
	pool *pgxpool.Pool
	keep func() // what was stored is kept
	fall func() // what was stored since is lost
}

// fallsBack lets a server fall back to a moment at which jobs ran that have ended since, and requires that they
// run again while their worker lives, with their limit and their schedule, and that this is said.
func fallsBack(t *testing.T, f fall) {
	const plain, limited = 20, 2
	w := newBackWorker(t, f.pool)
	require.NoError(t, w.SetLimit(t.Context(), "two", durable.Limit{Kind: "limited", Running: limited}))
	require.NoError(t, w.SetSchedule(t.Context(), "s", "@every 1s", durable.Job{Kind: "scheduled"}))
	w.start(t)
	add := func(n int, kind string) []durable.Ref {
		jobs := make([]durable.Job, n)
		for i := range jobs {
			jobs[i].Kind = kind
		}
		refs, err := w.AddMany(t.Context(), jobs...)
		require.NoError(t, err)
		return refs
	}
	refs := append(add(plain, "plain"), add(limited, "limited")...)
	w.runs(t, "plain", plain)
	w.runs(t, "limited", limited)
	w.runs(t, "scheduled", 1)
	f.keep()
	ids := map[int64]bool{}
	distinctIDs(t, w.engine, ids, "before")
	close(w.release)
	within := time.Now().Add(patience / 3)
	for w.Stats().Done < plain+limited+1 { // and one of the schedule
		require.True(t, time.Now().Before(within))
		time.Sleep(10 * time.Millisecond)
	}
	f.fall()
	began := time.Now()
	distinctIDs(t, w.engine, ids, "after")
	w.runs(t, "plain", 2*plain)
	t.Log("plain jobs ran again after", time.Since(began))
	scheduled := w.began("scheduled")
	add(3, "limited")
	w.runs(t, "limited", 2*limited+3)
	w.runs(t, "scheduled", scheduled+3)
	t.Log("limits and schedule went on after", time.Since(began))
	w.mu.Lock()
	for i, ref := range refs {
		want := []int{1, 1} // a claim ahead counts no attempt
		if i >= plain {
			want = []int{1, 2}
		}
		numbers := w.attempts[ref]
		require.Equal(t, want[:len(numbers)], numbers)
	}
	w.mu.Unlock()
	require.Eventually(t, func() bool { return w.Stats().Forgotten >= int64(plain+limited) }, time.Minute, time.Millisecond) // they are counted later
	require.Len(t, w.log.with(slog.LevelError, "the store went back"), 1)
	require.Len(t, w.log.with(slog.LevelWarn, "the jobs run again"), 1)
	t.Log(w.log.with(slog.LevelError, "the store went back"))
	for {
		err := w.Health(t.Context())
		if err == nil {
			break
		}
		require.ErrorIs(t, err, durable.ErrWentBack)
		require.True(t, time.Since(began) < patience)
		time.Sleep(10 * time.Millisecond)
	}
	t.Log("settled after", time.Since(began))
}

// distinctIDs makes workers, and requires that none has an id that is there.
func distinctIDs(t testing.TB, e *postgres.Engine, there map[int64]bool, name string) {
	for i := range 40 {
		w, err := e.Work(t.Context(), workConfig(name+string(rune('A'+i)), time.Minute))
		require.NoError(t, err)
		require.False(t, there[postgres.WorkerID(w)], "an id was given twice")
		there[postgres.WorkerID(w)] = true
	}
}

// A server with synchronous_commit=off crashes, and lacks the ends of jobs that had run. A frozen WAL writer
// makes that sure.
func TestCrashWithoutSync(t *testing.T) {
	t.Parallel()
	srv := pgserver.Test(t, room, "synchronous_commit=off", "checkpoint_timeout=1h")
	pool := newStore(srv).pool(t)
	fallsBack(t, fall{pool: pool, keep: func() {
		var writer int
		require.NoError(t, pool.QueryRow(t.Context(), "select pid from pg_stat_activity where backend_type = 'walwriter'").Scan(&writer))
		_, err := pool.Exec(t.Context(), "checkpoint")
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(writer, syscall.SIGSTOP)) // until Kill
	}, fall: func() {
		require.NoError(t, srv.Kill())
		require.NoError(t, srv.Start())
	}})
}

// The primary is lost, and a standby is promoted that was cut off for a while before.
func TestFailoverToLaggingStandby(t *testing.T) {
	t.Parallel()
	primary := server(t)
	needs(t, primary, "pg_basebackup")
	standby := primary.Standby(t)
	first, err := pgx.ParseConfig(primary.DSN())
	require.NoError(t, err)
	second, err := pgx.ParseConfig(standby.DSN())
	require.NoError(t, err)
	pool, err := pgxpool.New(t.Context(), fmt.Sprintf("postgres://tickwheel@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable&target_session_attrs=read-write&pool_max_conns=8",
		first.Port, second.Port))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	fallsBack(t, fall{pool: pool, keep: func() {
		var caughtUp bool
		for !caughtUp {
			err := pool.QueryRow(t.Context(), "select coalesce(bool_and(replay_lsn >= pg_current_wal_flush_lsn()), false) from pg_stat_replication").Scan(&caughtUp)
			require.NoError(t, err)
		}
		require.NoError(t, standby.Kill())
	}, fall: func() {
		time.Sleep(3 * time.Second)
		require.NoError(t, primary.Kill())
		require.NoError(t, standby.Start())
		c, err := pgx.ConnectConfig(t.Context(), second)
		require.NoError(t, err)
		defer c.Close(context.Background())
		_, err = c.Exec(t.Context(), "select pg_promote(false)") // one that waits for the replay may be canceled by it
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			var recovers bool
			return c.QueryRow(t.Context(), "select pg_is_in_recovery()").Scan(&recovers) == nil && !recovers
		}, patience, 10*time.Millisecond)
	}})
}
