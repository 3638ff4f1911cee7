package postgres_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// page returns a script of BACKUP.md.
func page(t testing.TB, name string) string {
	text, err := os.ReadFile("../BACKUP.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```(?:sh|conf)\n# " + regexp.QuoteMeta(name) + "\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, found, name)
	return string(found[1])
}

// runPage runs a script of BACKUP.md.
func runPage(t testing.TB, srv *pgserver.Server, name string, env ...string) {
	out, err := srv.Shell(page(t, name), env...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
}

// shop is a database with orders and the jobs that they need, which are completed with a
// row that says so.
type shop struct {
	pool *pgxpool.Pool
	e    *postgres.Engine
}

func openShop(t testing.TB, srv *pgserver.Server, name string) shop {
	config, err := pgxpool.ParseConfig(srv.DSN() + "&pool_max_conns=8")
	require.NoError(t, err)
	config.ConnConfig.Database = name
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	e, err := postgres.Connect(t.Context(), pool)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return shop{pool, e}
}

func newShop(t testing.TB, srv *pgserver.Server) shop {
	newStore(srv).exec(t, newStore(srv).pool(t), "create database shop")
	s := openShop(t, srv, "shop")
	require.NoError(t, s.e.Migrate(t.Context()))
	for _, sql := range []string{"create table orders (ref text primary key)", "create table reminded (ref text not null)"} {
		_, err := s.pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	return s
}

// order stores an order with its job.
func (s shop) order(ctx context.Context, after time.Duration) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		refs, err := s.e.AddTx(ctx, tx, durable.Job{Kind: "k", After: after})
		if err == nil {
			_, err = tx.Exec(ctx, "insert into orders values ($1)", refs[0])
		}
		return err
	})
}

func (s shop) remind(ctx context.Context, a *durable.Attempt) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into reminded values ($1)", a.Ref); err != nil {
			return err
		}
		return s.e.CompleteTx(ctx, tx, a)
	})
}

func (s shop) count(t testing.TB, what string) (n int) {
	require.NoError(t, s.pool.QueryRow(t.Context(), "select count(*) from "+what).Scan(&n))
	return n
}

const unreminded = "orders o where (select count(*) from reminded r where r.ref = o.ref) <> 1"

// A dump of a database in use is of one moment: each order in it was reminded, or is with
// its job, and in the end all were, once.
func TestDumpAndRestore(t *testing.T) {
	t.Parallel()
	srv := server(t)
	needs(t, srv, "pg_dump", "pg_restore", "createdb")
	s := newShop(t, srv)
	_, stop := runQueue(t, s.e, s.remind)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	var ordered atomic.Int64
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				if s.order(ctx, 300*time.Millisecond) == nil {
					ordered.Add(1)
				}
			}
		})
	}
	require.Eventually(t, func() bool { return ordered.Load() > 100 && s.count(t, "reminded") > 0 }, patience, time.Millisecond)
	least := ordered.Load()
	runPage(t, srv, "dump.sh")
	cancel()
	callers.Wait()
	stop()
	runPage(t, srv, "restore.sh")

	c := openShop(t, srv, "copy")
	require.GreaterOrEqual(t, c.count(t, "orders"), int(least))
	t.Logf("%d orders, %d of them reminded", c.count(t, "orders"), c.count(t, "reminded"))
	runQueue(t, c.e, c.remind)
	require.Eventually(t, func() bool { return c.count(t, unreminded) == 0 }, patience, 10*time.Millisecond)
	require.Equal(t, c.count(t, "orders"), c.count(t, "reminded"))
}

// A database whose disk is lost is as it was at the moment that was asked for: what was
// committed before is there, and what came after is not.
func TestPointInTime(t *testing.T) {
	t.Parallel()
	conf := regexp.MustCompile(`(?m)^(\w+) = '?(.*?)'?$`).FindAllStringSubmatch(page(t, "archive.conf"), -1)
	require.Len(t, conf, 2)
	backup, err := os.MkdirTemp("", "tickwheel-backup-") // t.TempDir is for one user
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(backup) })
	require.NoError(t, os.Mkdir(backup+"/log", 0o777))
	for _, dir := range []string{backup, backup + "/log"} {
		require.NoError(t, os.Chmod(dir, 0o777)) // the server may be another user
	}
	srv := pgserver.Test(t, conf[0][1]+"="+conf[0][2], conf[1][1]+"="+strings.ReplaceAll(conf[1][2], "/backup", backup))
	run := func(name string, env ...string) {
		script := strings.NewReplacer("/backup", backup, "/var/lib/postgresql", srv.Dir()).Replace(page(t, name))
		out, err := srv.Shell(script, env...).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
	needs(t, srv, "pg_basebackup")
	s := newShop(t, srv)
	run("base.sh")
	for range 10 {
		require.NoError(t, s.order(t.Context(), time.Second))
	}
	_, stop := runQueue(t, s.e, s.remind)
	require.NoError(t, s.order(t.Context(), 0))
	require.Eventually(t, func() bool { return s.count(t, "reminded") > 0 }, patience, time.Millisecond)
	stop()
	var moment string
	require.NoError(t, s.pool.QueryRow(t.Context(), "select clock_timestamp()::text").Scan(&moment))
	done := s.count(t, "reminded")
	s = openShop(t, srv, "shop")
	require.NoError(t, s.order(t.Context(), time.Second))
	_, err = s.pool.Exec(t.Context(), "delete from orders")
	require.NoError(t, err)
	archive(t, s.pool)
	s.pool.Close()
	require.NoError(t, srv.Kill())
	run("recover.sh", "MOMENT="+moment)
	require.NoError(t, srv.Start())

	s = openShop(t, srv, "shop")
	require.Eventually(t, func() bool { return s.count(t, "pg_settings where name = 'in_hot_standby' and setting = 'off'") == 1 }, patience, 10*time.Millisecond)
	require.Equal(t, []int{11, done}, []int{s.count(t, "orders"), s.count(t, "reminded")})
	runQueue(t, s.e, s.remind)
	require.Eventually(t, func() bool { return s.count(t, unreminded) == 0 }, patience, 10*time.Millisecond)
	require.Equal(t, 11, s.count(t, "reminded"))
}

// needs skips a test for which the server's package has no program.
func needs(t testing.TB, srv *pgserver.Server, programs ...string) {
	for _, program := range programs {
		if !srv.Has(program) {
			t.Skipf("the package of this server has no %s", program)
		}
	}
}

// archive waits until all of the log is archived that there is.
func archive(t testing.TB, pool *pgxpool.Pool) {
	var file string
	require.NoError(t, pool.QueryRow(t.Context(), "select pg_walfile_name(pg_switch_wal())").Scan(&file))
	require.Eventually(t, func() (there bool) {
		err := pool.QueryRow(t.Context(), "select last_archived_wal >= $1 from pg_stat_archiver", file).Scan(&there)
		return err == nil && there
	}, patience, 10*time.Millisecond)
}
