package postgres_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
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

// A worker with nothing to do makes few transactions once it knows that notifications arrive.
func TestIdle(t *testing.T) {
	t.Parallel()
	e, made := sharedStore(t).counted(t)
	consume(t, e)
	require.Eventually(t, e.Arrives, patience, 10*time.Millisecond)
	time.Sleep(time.Second) // a poll that waits goes on by what was known before
	polls, all := made.count(aPoll), made.count("")
	began := time.Now()
	time.Sleep(5 * time.Second)
	seconds := time.Since(began).Seconds()
	polls, all = made.count(aPoll)-polls, made.count("")-all
	t.Logf("%.2f polls and %.2f transactions a second", float64(polls)/seconds, float64(all)/seconds)
	require.Less(t, float64(polls)/seconds, 3.0)
	require.Less(t, float64(all)/seconds, mostTransactions)
	require.NotZero(t, polls)
}

// mostTransactions is a generous bound on the transactions of an idle worker, in a second.
const mostTransactions = 10.0

// Jobs that nobody announces are found by an idle worker: one that comes due at once, and one that is added for
// a time too late to be announced.
func TestIdleFindsUnannounced(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	c := consume(t, e)
	require.Eventually(t, e.Arrives, patience, 10*time.Millisecond)
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
	t.Log("after", first.Sub(updated), "and late by", second.Sub(later))
	require.Less(t, first.Sub(updated), 30*time.Second)
	require.Less(t, second.Sub(later), 30*time.Second)
	require.True(t, e.Arrives() || time.Since(updated) > time.Second)
}

// Where a proxy drops notifications, that is found out: polls stay as frequent as they are without them.
func TestDroppedNotificationsAreNoticed(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, _ := s.behindProxy(t)
	c := consume(t, e)
	other, err := durable.Open(t.Context(), s.open(t))
	require.NoError(t, err)
	t.Cleanup(func() { other.Close() })
	for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(10 * time.Millisecond) {
		require.False(t, e.Arrives())
	}
	ref, err := other.Add(t.Context(), durable.Job{Kind: "k"})
	require.NoError(t, err)
	c.began(t, ref)
}
