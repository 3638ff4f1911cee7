package postgres

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/internal/pgserver"
)

// Nodes that have all seen an empty database, and then migrate at one time, all succeed.
func TestMigrateAtOnce(t *testing.T) {
	s := pgserver.Test(t)
	engines := make([]*Engine, 8)
	for i := range engines {
		pool, err := pgxpool.New(t.Context(), s.DSN())
		require.NoError(t, err)
		defer pool.Close()
		engines[i], err = Connect(t.Context(), pool)
		require.NoError(t, err)
		defer engines[i].Close()
	}
	errs := make([]error, len(engines))
	var wg sync.WaitGroup
	for i, e := range engines {
		wg.Go(func() { errs[i] = e.Migrate(t.Context()) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}
