package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// Close sends what is to be sent to other processes: the announcements of jobs, and notices.
func TestCloseSends(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	s.open(t) // makes the tables
	c, err := pgx.Connect(t.Context(), s.srv.DSN())
	require.NoError(t, err)
	defer c.Close(context.Background())
	_, err = c.Exec(t.Context(), "listen "+s.schema)
	require.NoError(t, err)
	const rounds = 10
	for n := range rounds {
		q, err := durable.Open(t.Context(), s.open(t))
		require.NoError(t, err)
		for i := range 3 { // the announcement of the second waits for the first
			_, err = q.Add(t.Context(), durable.Job{Kind: fmt.Sprintf("k%d-%d", n, i)})
			require.NoError(t, err)
		}
		err = q.SetLimit(t.Context(), fmt.Sprint("l", n), durable.Limit{Running: 1})
		require.NoError(t, err)
		require.NoError(t, q.Close())
	}
	s.exec(t, s.pool(t), `select pg_notify('SCHEMA', 'the end')`) // they arrive in the order in which they are committed
	var all strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	notices := 0
	for {
		n, err := c.WaitForNotification(ctx)
		require.NoError(t, err)
		if n.Payload == "the end" {
			break
		}
		all.WriteString(n.Payload)
		if strings.Contains(n.Payload, "flow_control") {
			notices++
		}
	}
	announced := 0
	for n := range rounds {
		if strings.Contains(all.String(), fmt.Sprintf("k%d-2", n)) {
			announced++
		}
	}
	t.Logf("of %d: %d announced, %d notices", rounds, announced, notices)
	require.Greater(t, announced, rounds/2)
	require.Greater(t, notices, rounds/2)
}
