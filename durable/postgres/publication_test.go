package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// The server refuses each update and delete of a published table without a replica identity. So each table
// has one, also those that a later version adds.
func TestPublished(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"before Migrate": true, "after Migrate": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(server(t))
			admin := s.pool(t)
			publish := func() { s.exec(t, admin, "create publication everything for all tables") }
			if first {
				publish()
			}
			e := s.open(t)
			if !first {
				publish()
			}
			rows, err := admin.Query(t.Context(), `select relname::text from pg_class c where relnamespace = $1::regnamespace and relkind in ('r', 'p')
				and (relreplident = 'n' or relreplident = 'd' and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary))`, s.schema)
			require.NoError(t, err)
			without, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			require.Empty(t, without)

			// One call of each that updates or deletes.
			ctx := t.Context()
			q, w, held, refs := filled(t, e)
			require.NoError(t, q.SetLimit(ctx, "l", durable.Limit{Kind: "k", Running: 2}))
			require.NoError(t, q.Pause(ctx, durable.Pausable{Lane: "x"}))
			require.NoError(t, q.Resume(ctx, durable.Pausable{Lane: "x"}))
			require.NoError(t, q.DeleteLimit(ctx, "l"))
			require.NoError(t, w.Heartbeat(ctx))
			require.NoError(t, w.Finish(ctx, []driver.Completion{{Delivery: held, End: driver.DeadLetter, Error: "x"}})[0])
			require.NoError(t, q.Redrive(ctx, refs[0]))
			signaled, err := q.Signal(ctx, "key", []byte("x"))
			require.NoError(t, err)
			require.True(t, signaled)
			moved, err := q.Reschedule(ctx, refs[0], time.Now().Add(time.Hour))
			require.NoError(t, err)
			require.True(t, moved)
			canceled, err := q.Cancel(ctx, refs[0])
			require.NoError(t, err)
			require.True(t, canceled)
			require.NoError(t, q.DeleteSchedule(ctx, "s"))
			s.exec(t, admin, "update SCHEMA.format set swept_to = ''; update SCHEMA.job set born = born - interval '1 hour', id = '0' || substr(id, 2)")
			e.Sweep(context.WithoutCancel(ctx))
			var sweptTo string
			require.NoError(t, admin.QueryRow(ctx, "select swept_to from "+s.schema+".format").Scan(&sweptTo))
			require.NotEmpty(t, sweptTo)
			e.Expire(ctx)
			require.NoError(t, w.Close(ctx))
			require.NoError(t, e.Migrate(ctx))
		})
	}
}
