package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// A poll hands out all jobs of a page at once, where many are overdue. The page has room for a new version of nearly each:
// a version in another page would be one more entry in each index.
func TestHandedOutStaysInPage(t *testing.T) {
	t.Parallel()
	const n = 500
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	recs, due := make([]driver.Record, n), time.Now().Add(-time.Hour)
	for i := range recs {
		recs[i] = record(fmt.Sprint(i), due.Add(time.Duration(i)*time.Microsecond))
		recs[i].Payload = make([]byte, 100)
	}
	_, errs := e.Insert(t.Context(), recs)
	for _, err := range errs {
		require.NoError(t, err)
	}
	s.exec(t, pool, "create table SCHEMA.was as select id, (ctid::text::point)[0] as page from SCHEMA.job")
	w, err := e.Work(t.Context(), workConfig("w", time.Minute))
	require.NoError(t, err)
	got, err := postgres.Poll(t.Context(), w)
	require.NoError(t, err)
	require.Len(t, got, n)
	var left int
	require.NoError(t, pool.QueryRow(t.Context(),
		"select count(*) from "+s.schema+".job j join "+s.schema+".was using (id) where (j.ctid::text::point)[0] <> was.page").Scan(&left))
	require.Less(t, left, n/5)
}
