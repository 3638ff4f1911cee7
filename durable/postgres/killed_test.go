package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
	"github.com/tickwheel/tickwheel/durable/testservers/busy"
)

// Jobs that are completed in the transactions of their effects have these exactly once,
// and occurrences of a schedule at most once: though their process is killed at any moment,
// and the server once, and some of the transactions are rolled back, and some handlers
// return an error though theirs is committed. POSTGRES_KILLS sets how often, by default 8.
func TestCompleteTxKilled(t *testing.T) {
	if schema := os.Getenv("COMPLETE_SCHEMA"); schema != "" {
		completeAll(t, schema)
		return
	}
	t.Parallel()
	kills := 8
	if n, err := strconv.Atoi(os.Getenv("POSTGRES_KILLS")); err == nil {
		kills = n
	}
	s := newStore(server(t))
	e, pool := s.open(t), s.pool(t)
	s.effects(t, pool)
	jobs := make([]driver.Job, 40*kills)
	for i := range jobs {
		jobs[i] = durable.Job{Kind: "k", MaxAttempts: 1000, After: rand.N(time.Duration(kills) * 500 * time.Millisecond)}
	}
	var refs []durable.Ref
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
		refs, err = e.AddTx(t.Context(), tx, jobs...)
		return err
	}))
	killed := 0
	for range 20 * kills {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCompleteTxKilled$")
		cmd.Env = append(os.Environ(), "COMPLETE_SCHEMA="+s.schema, "COMPLETE_DSN="+s.srv.DSN())
		if killed < kills {
			cmd.Env = append(cmd.Env, "COMPLETE_UNTIL=killed") // so that a slow machine has as many kills
		}
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = out.Read(make([]byte, 1)) // it has a handler that runs
		require.NoError(t, err)
		if killed < kills {
			time.Sleep(rand.N(400 * time.Millisecond))
			if killed == kills/2 {
				s.Restart(t)
			}
			require.NoError(t, cmd.Process.Kill())
		}
		if err := cmd.Wait(); err == nil {
			break
		}
		killed++
	}
	rows, err := pool.Query(t.Context(), "select of from "+s.schema+".effect")
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	times := map[string]int{}
	for _, of := range all {
		times[of]++
		require.Equal(t, 1, times[of], "%s twice", of)
	}
	for _, ref := range refs {
		require.Equal(t, 1, times[string(ref)], "%s is missing", ref)
	}
	t.Logf("%d kills, %d jobs, %d occurrences", killed, len(refs), len(all)-len(refs))
	require.GreaterOrEqual(t, killed, kills)
	require.Greater(t, len(all), len(refs), "no occurrence")
}

// completeAll is the process that is killed. The one that is not ends when an occurrence has run and no
// job waits except the next one.
func completeAll(t *testing.T, schema string) {
	pool, err := pgxpool.New(t.Context(), os.Getenv("COMPLETE_DSN")+"&pool_max_conns=20")
	require.NoError(t, err)
	defer pool.Close()
	e, err := postgres.Connect(t.Context(), pool, postgres.WithSchema(schema))
	require.NoError(t, err)
	q, stop := runQueue(t, e, func(ctx context.Context, a *durable.Attempt) error {
		fmt.Println("begun")
		of := string(a.Ref)
		if a.Schedule != "" {
			of = a.Occurrence.UTC().Format(time.RFC3339Nano)
		}
		return leaveEffect(ctx, e, pool, a, "insert into "+schema+".effect values ($1)", of)
	}, durable.WithLease(busy.Longer(2*time.Second)))
	require.NoError(t, q.SetSchedule(t.Context(), "s", "@every 1s", durable.Job{Kind: "k", MaxAttempts: 1000}))
	require.Eventually(t, func() bool {
		left := 0
		for info, err := range q.All(t.Context(), durable.Filter{}) {
			if err != nil {
				return false
			}
			if info.Job.Key == "" {
				left++
			}
		}
		for s, err := range q.Schedules(t.Context()) {
			if err != nil || s.Last.IsZero() { // no occurrence has run
				return false
			}
		}
		return left == 0 && os.Getenv("COMPLETE_UNTIL") == ""
	}, patience, 20*time.Millisecond)
	stop()
}

// leaveEffect is a handler that fails now and then, in all ways.
func leaveEffect(ctx context.Context, e *postgres.Engine, pool *pgxpool.Pool, a *durable.Attempt, insert, of string) error {
	linger := func() { time.Sleep(rand.N(20 * time.Millisecond)) }
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(ctx, insert, of); err != nil {
		return err
	}
	linger()
	if err := e.CompleteTx(ctx, tx, a); err != nil {
		return err
	}
	linger()
	fate := rand.N(10)
	if fate == 0 {
		return nil // rolled back
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	linger()
	if fate == 1 {
		return errors.New("committed all the same")
	}
	return nil
}
