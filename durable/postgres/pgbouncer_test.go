package postgres_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/enginetest"
	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
	"github.com/tickwheel/tickwheel/durable/testservers/ports"
)

// bouncer starts a PgBouncer that gives each of four connections to a client for one
// transaction, and returns the address. Without the program the test is skipped, or fails
// where servers are required.
func bouncer(t testing.TB, srv *pgserver.Server) string {
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		bin = "/usr/sbin/pgbouncer"
		_, err = os.Stat(bin)
	}
	if err != nil && os.Getenv("TICKWHEEL_POSTGRES") != "required" {
		t.Skip("PgBouncer is not installed")
	}
	require.NoError(t, err)
	c, err := pgxpool.ParseConfig(srv.DSN())
	require.NoError(t, err)
	port, err := ports.Reserve(1)
	require.NoError(t, err)
	t.Cleanup(port.Release)
	dir, err := os.MkdirTemp("", "tickwheel-pgbouncer-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := filepath.Join(dir, "ini")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `[databases]
postgres = host=127.0.0.1 port=%d user=tickwheel
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
`, c.ConnConfig.Port, port.Ports[0]), 0o644))
	require.NoError(t, os.Chmod(dir, 0o755))
	args := []string{config}
	if os.Getuid() == 0 { // it refuses to run as root
		args = []string{"-u", "nobody", config}
	}
	// Releases before 1.21 exit now and then with "server in bad state: 11" when a client
	// cancels a query (its issue 822). A service manager starts it again, and so does the test.
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			err := exec.CommandContext(ctx, bin, args...).Run()
			t.Log("PgBouncer has ended:", err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	dsn := fmt.Sprintf("postgres://tickwheel@127.0.0.1:%d/postgres?sslmode=disable&default_query_exec_mode=exec", port.Ports[0])
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, dsn)
		if err == nil {
			conn.Close(ctx)
		}
		return err == nil
	}, patience, 20*time.Millisecond)
	return dsn
}

// Behind a PgBouncer that shares connections by transaction the same holds.
func TestConformanceBehindPgBouncer(t *testing.T) {
	t.Parallel()
	srv := server(t)
	dsn := bouncer(t, srv)
	enginetest.RunOnly(t, func(testing.TB) enginetest.Store {
		s := newStore(srv)
		s.dsn = dsn
		return s
	}, "Keys", "CancelAgainstClaim", "TwoWorkers", "LeaseLost", "Accounts")
}
