package postgres_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// full is a job that has everything that one may have, with what is special to SQL.
func full(due time.Time) durable.Job {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return durable.Job{
		Kind: `k "x" \ {a,b} 'é' null`, Payload: all, At: due, MaxAttempts: 7, Lane: `"lane" \\ NULL`, Priority: durable.High,
		Meta: map[string]string{`na"me\`: "val\"ue\\ \t {}", "empty": "", "ü": "\u2028"}, Timeout: 1500 * time.Millisecond,
		Expires: due.Add(time.Hour), Key: `key "of", {it} \`, Retain: time.Hour + time.Microsecond, RetainPayload: true,
	}
}

// By whatever driver, jobs are there if and only if the transaction is committed, with all
// that they have, and run at once.
func TestAddSQL(t *testing.T) {
	t.Parallel()
	withEach(t, func(t *testing.T, s *store, e *postgres.Engine, begin func(context.Context) (transaction, error)) {
		ctx := t.Context()
		c := consume(t, s.open(t))
		due := time.Date(2100, 1, 2, 3, 4, 5, 678901000, time.UTC)
		tx, err := begin(ctx)
		require.NoError(t, err)
		refs, err := tx.add(ctx, full(due), durable.Job{Kind: "k"}, durable.Job{Kind: "later", After: time.Hour})
		require.NoError(t, err)
		_, err = c.Get(ctx, refs[0])
		require.ErrorIs(t, err, durable.ErrNotFound, "not committed yet")
		require.NoError(t, tx.commit())
		c.began(t, refs[1])
		info, err := c.Get(ctx, refs[0])
		require.NoError(t, err)
		info.Job.At, info.Job.Expires = info.Job.At.UTC(), info.Job.Expires.UTC()
		require.Equal(t, full(due), info.Job)
		ok, err := c.Cancel(ctx, refs[2])
		require.NoError(t, err)
		require.True(t, ok)

		tx, err = begin(ctx)
		require.NoError(t, err)
		gone, err := tx.add(ctx, durable.Job{Kind: "k"})
		require.NoError(t, err)
		require.NoError(t, tx.rollback())
		_, err = c.Get(ctx, gone[0])
		require.ErrorIs(t, err, durable.ErrNotFound)

		tx, err = begin(ctx)
		require.NoError(t, err)
		_, err = tx.add(ctx, durable.Job{Kind: "k"}, durable.Job{Kind: "k\n"})
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.ErrorContains(t, err, "job 1: ")
		refs, err = tx.add(ctx, full(due), durable.Job{Kind: "k"})
		require.ErrorIs(t, err, durable.ErrExists)
		require.Empty(t, refs[0])
		require.NoError(t, tx.commit(), "a key that is taken leaves the transaction as it was")
		c.began(t, refs[1])
		none, err := tx.add(ctx)
		require.NoError(t, err)
		require.Empty(t, none)
	})
}

// Errors of any driver have the names that durable has for them.
func TestAddSQLErrors(t *testing.T) {
	t.Parallel()
	withEach(t, func(t *testing.T, s *store, e *postgres.Engine, begin func(context.Context) (transaction, error)) {
		s.exec(t, s.pool(t), "alter table SCHEMA.job rename to moved")
		tx, err := begin(t.Context())
		require.NoError(t, err)
		_, err = tx.add(t.Context(), durable.Job{Kind: "k"})
		require.ErrorContains(t, err, "call Migrate")
		require.NoError(t, tx.rollback())
		require.NoError(t, e.Close())
		tx, err = begin(t.Context())
		require.NoError(t, err)
		_, err = tx.add(t.Context(), durable.Job{Kind: "k"})
		require.ErrorIs(t, err, durable.ErrClosed)
		require.NoError(t, tx.rollback())
	})
	require.PanicsWithValue(t, "postgres: AddTx: nil tx", func() { (&postgres.Engine{}).AddTx(t.Context(), nil) })
	require.PanicsWithValue(t, "postgres: AddSQL: nil tx", func() { (&postgres.Engine{}).AddSQL(t.Context(), (*sql.Tx)(nil)) })
}
