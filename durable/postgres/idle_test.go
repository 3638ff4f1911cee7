package postgres_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// counter counts transactions, by a statement of each.
type counter struct {
	mu   sync.Mutex
	made map[string]int
}

func (c *counter) add(statement string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[statement]++
}

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	c.add(q.SQL)
	return ctx
}
func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	c.add(b.Batch.QueuedQueries[b.Batch.Len()-1].SQL)
	return ctx
}
func (c *counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// count returns how many transactions were made, of statements that contain a text.
func (c *counter) count(part string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for statement, made := range c.made {
		if strings.Contains(statement, part) {
			n += made
		}
	}
	return n
}

// counted returns an engine, and the counter of its transactions.
func (s *store) counted(t *testing.T) (*postgres.Engine, *counter) {
	s.open(t) // migrates
	config, err := pgxpool.ParseConfig(s.srv.DSN() + "&pool_max_conns=8")
	require.NoError(t, err)
	c := &counter{made: map[string]int{}}
	config.ConnConfig.Tracer = c
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	e, err := postgres.Connect(t.Context(), pool, postgres.WithSchema(s.schema))
	require.NoError(t, err)
	return e, c
}

// The text of a poll, and of an echo.
const (
	aPoll  = "select clock_timestamp(), l.revision" // of all kinds; most are
	anEcho = "current_setting('max_prepared_transactions'))"
)

// A worker with nothing to do makes few transactions once it knows that notifications arrive. On a busy machine an echo
// may come too late, which makes polls frequent for a while, but not each time.
func TestIdle(t *testing.T) {
	t.Parallel()
	e, made := sharedStore(t).counted(t)
	consume(t, e)
	for try := 1; ; try++ {
		require.Eventually(t, e.Arrives, patience, 10*time.Millisecond)
		time.Sleep(time.Second) // a poll that waits goes on by what was known before
		polls, all := made.count(aPoll), made.count("")
		began := time.Now()
		time.Sleep(5 * time.Second)
		rate := float64(made.count("")-all) / time.Since(began).Seconds()
		t.Logf("%d polls, and %.2f transactions a second", made.count(aPoll)-polls, rate)
		require.Eventually(t, func() bool { return made.count(aPoll) > polls }, patience, 10*time.Millisecond)
		if rate < mostTransactions {
			return
		}
		require.Less(t, try, 6, "it is busy each time")
	}
}

// mostTransactions is a generous bound on the transactions of an idle worker, in a second.
const mostTransactions = 4.0

// untilQuiet is how long polls may come, since notifications arrive, that were owed before. They would find what a test
// adds, and the test could not fail.
const untilQuiet = 6 * time.Second

// Jobs that nobody announces are found by an idle worker: one that comes due at once, and one that is added for
// a time too late to be announced.
func TestIdleFindsUnannounced(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	c := consume(t, e)
	require.Eventually(t, e.Arrives, patience, 10*time.Millisecond)
	time.Sleep(untilQuiet)
	s.exec(t, pool, `select SCHEMA.add_job('k', due => now() + interval '1 hour')`)
	later := time.Now().Add(1100 * time.Millisecond)
	s.exec(t, pool, `select SCHEMA.add_job('k', due => now() + interval '1.1 s')`)
	updated := time.Now()
	s.exec(t, pool, `update SCHEMA.job set due = now() where due > now() + interval '1 minute'`)
	var runs []time.Time
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		runs = runs[:0]
		for _, at := range c.runs {
			runs = append(runs, at)
		}
		return len(runs) == 2
	}, patience, time.Millisecond)
	first, second := runs[0], runs[1]
	if second.Before(first) {
		first, second = second, first
	}
	t.Log("after", first.Sub(updated), "and late by", second.Sub(later)) // TestPollsWhileNotificationsArrive bounds the time
	require.True(t, e.Arrives() || time.Since(updated) > time.Second)
}

// Where a proxy drops notifications, that is found out and logged: polls stay as frequent as they are without them.
func TestDroppedNotificationsAreNoticed(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, _ := s.behindProxy(t)
	var log lockedBuffer
	c := consume(t, e, durable.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	other, err := durable.Open(t.Context(), s.open(t))
	require.NoError(t, err)
	t.Cleanup(func() { other.Close() })
	require.Eventually(t, func() bool {
		require.False(t, e.Arrives())
		return strings.Contains(log.String(), "announcements of other processes do not arrive")
	}, patience, 10*time.Millisecond)
	ref, err := other.Add(t.Context(), durable.Job{Kind: "k"})
	require.NoError(t, err)
	c.began(t, ref)
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// An idle worker begins a job of another process when it is announced: its polls are an hour apart. When its listening
// connection is cut off, it polls often at once, and listens again.
func TestIdleIsWoken(t *testing.T) {
	t.Parallel()
	s := newStore(server(t))
	e, pool := s.open(t), s.pool(t)
	e.SetPoll(time.Hour)
	c := consume(t, e)
	other, err := durable.Open(t.Context(), s.open(t))
	require.NoError(t, err)
	t.Cleanup(func() { other.Close() })
	for range 2 {
		require.Eventually(t, e.Arrives, patience, 10*time.Millisecond)
		time.Sleep(untilQuiet)
		ref, err := other.Add(t.Context(), durable.Job{Kind: "k"})
		require.NoError(t, err)
		c.began(t, ref)
		for cuts := 0; cuts == 0 || e.Arrives(); { // again if it has listened anew before that was seen
			require.Less(t, cuts, 5, "it does not notice that its connection was cut off")
			var cut int
			require.NoError(t, pool.QueryRow(t.Context(),
				"select count(pg_terminate_backend(pid)) from pg_stat_activity where query like 'listen \"tickwheel_echo_%'").Scan(&cut))
			if cut > 0 {
				cuts++
			}
			for until := time.Now().Add(5 * time.Second); e.Arrives() && time.Now().Before(until); {
				time.Sleep(time.Millisecond)
			}
		}
	}
}

// Where jobs of a caller's transaction are not announced, since transactions can be prepared, polls stay frequent. That is
// no fault, and so it is not logged.
func TestPreparedAreNotAnnounced(t *testing.T) {
	t.Parallel()
	s := newStore(pgserver.Test(t, "max_prepared_transactions=10"))
	e, made := s.counted(t)
	var log lockedBuffer
	consume(t, e, durable.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.Eventually(t, func() bool { return made.count(anEcho) > 0 }, patience, 10*time.Millisecond)
	time.Sleep(3 * time.Second) // longer than an echo may take
	require.False(t, e.Arrives())
	require.Eventually(t, func() bool { // an echo that was too late on a busy machine is logged, and so is the next one
		said := log.String()
		return strings.Count(said, "do not arrive") == strings.Count(said, "arrive again")
	}, patience, 10*time.Millisecond)
}
