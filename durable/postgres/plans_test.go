package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// passAll are statements that may pass all jobs: pending counts jobs up to a bound, and the others have a plan of
// their own with the index on meta.
var passAll = map[string]bool{"pending": true, "search": true, "pageByMeta": true}

// Statements find jobs by an index. A condition that does not imply that of a partial index makes the planner read
// all of the table, however few jobs the statement is for. A step that is so expensive also hides the cost of all
// other steps of its query, so that a plan without jobs of such a key may pass the whole table, too.
func TestNoStatementPassesAllJobs(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e := s.open(t)
	recs := make([]driver.Record, 3000)
	for i := range recs {
		recs[i] = record(fmt.Sprint(i), time.Now().Add(time.Hour))
		recs[i].Key = fmt.Sprint("key ", i)
	}
	_, errs := e.Insert(t.Context(), recs)
	for _, err := range errs {
		require.NoError(t, err)
	}
	c, err := pgx.Connect(t.Context(), s.srv.DSN())
	require.NoError(t, err)
	defer c.Close(t.Context())
	_, err = c.Exec(t.Context(), "analyze "+s.schema+".job")
	require.NoError(t, err)
	for name, text := range postgres.Statements(s.schema) {
		if passAll[name] {
			continue
		}
		plan := planOf(t, c, name, text)
		for i, step := range plan {
			if !strings.Contains(step, " Scan ") || !strings.Contains(step, " on job ") {
				continue
			}
			found := i+1 < len(plan) && strings.Contains(plan[i+1], "Index Cond: ")
			firstKind := strings.Contains(step, "Index Only Scan using job_kind on job ") // it ends at the first row
			require.True(t, found || firstKind, "%s passes all jobs: %s\n\n%s", name, strings.TrimSpace(step), strings.Join(plan, "\n"))
		}
	}
}

// planOf returns the lines of the plan that a connection makes for whatever arguments.
func planOf(t *testing.T, c *pgx.Conn, name, text string) []string {
	tx, err := c.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), postgres.Hot)
	require.NoError(t, err)
	prepared, err := tx.Prepare(t.Context(), name, text)
	require.NoError(t, err, name)
	execute := "explain execute " + pgx.Identifier{name}.Sanitize()
	if n := len(prepared.ParamOIDs); n > 0 {
		execute += "(null" + strings.Repeat(", null", n-1) + ")"
	}
	rows, err := tx.Query(t.Context(), execute, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err, name)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err, name)
	return plan
}
