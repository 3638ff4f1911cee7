package postgres_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// openWith returns an engine on a pool that change has set up.
func (s *store) openWith(t testing.TB, change func(*pgxpool.Config)) *postgres.Engine {
	c, err := pgxpool.ParseConfig(s.srv.DSN() + "&pool_max_conns=8" + s.params)
	require.NoError(t, err)
	change(c)
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	e, err := postgres.Connect(t.Context(), pool, postgres.WithSchema(s.schema))
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

// hooks are the ways in which a pool may give its connections their rights.
var hooks = map[string]func(c *pgxpool.Config, set func(context.Context, *pgx.Conn) error){
	"AfterConnect": func(c *pgxpool.Config, set func(context.Context, *pgx.Conn) error) { c.AfterConnect = set },
	"PrepareConn": func(c *pgxpool.Config, set func(context.Context, *pgx.Conn) error) {
		c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
			err := set(ctx, conn)
			if conn.IsClosed() { // it has ended meanwhile, and the pool takes another one
				return false, nil
			}
			return true, err
		}
	},
	"BeforeAcquire": func(c *pgxpool.Config, set func(context.Context, *pgx.Conn) error) {
		//lint:ignore SA1019 a user's pool may still have it
		c.BeforeAcquire = func(ctx context.Context, conn *pgx.Conn) bool { return set(ctx, conn) == nil }
	},
	"BeforeConnect": func(c *pgxpool.Config, set func(context.Context, *pgx.Conn) error) {
		c.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error { c.RuntimeParams["role"] = "works"; return nil }
	},
}

// A pool may give its connections their rights by any of its hooks: those that a worker has beside the
// pool have them, too. It renews its lease, and is notified.
func TestRightsOfHooks(t *testing.T) {
	t.Parallel()
	s := newStore(server(t))
	admin := s.pool(t)
	s.exec(t, admin, postgres.Grants(s.schema)+"; create role works in role SCHEMA_work; create role app login noinherit in role works")
	s.open(t)
	s.exec(t, admin, postgres.Grants(s.schema))
	for name, hook := range hooks {
		t.Run(name, func(t *testing.T) {
			var closed sync.Map
			e := s.as("app").openWith(t, func(c *pgxpool.Config) {
				hook(c, func(ctx context.Context, conn *pgx.Conn) error {
					_, err := conn.Exec(ctx, "set role works")
					return err
				})
				c.BeforeClose = func(conn *pgx.Conn) { closed.Store(conn, true) }
			})
			w, err := e.Work(t.Context(), workConfig(name, time.Minute))
			require.NoError(t, err)
			require.NoError(t, w.Heartbeat(t.Context()))
			notified := make(chan driver.Notice, 100)
			listening, err := e.Work(t.Context(), driver.WorkConfig{Name: name + " listens", Kinds: driver.NewKindSet([]string{"k"}), Lease: time.Minute,
				Ahead: time.Second, Retention: time.Hour, Notify: func(n driver.Notice) { notified <- n }})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- listening.Fetch(ctx, func([]*driver.Delivery) {}) }()
			s.awaitNotice(t, admin, notified)
			stop()
			require.NoError(t, <-done)
			require.NoError(t, w.Close(t.Context()))
			n := 0
			closed.Range(func(any, any) bool { n++; return true })
			require.GreaterOrEqual(t, n, 2, "BeforeClose is called of the connection that listened, and of that of the heartbeat")
		})
	}
}

// awaitNotice sends notices, as another process does, until one has come.
func (s *store) awaitNotice(t testing.TB, pool *pgxpool.Pool, notified <-chan driver.Notice) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		_, err := pool.Exec(t.Context(), "select pg_notify($1, $2)", s.schema, `{"notice":{"freed":[{"limit":1}]}}`)
		require.NoError(t, err)
		select {
		case <-notified:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatal("no notice comes")
}

// A hook that refuses a connection has it closed, and is asked again. OnNotification of the pool's
// connections takes no notice away, and gets those of other channels.
func TestHooksOfTheListener(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	s.open(t)
	admin := s.pool(t)
	others := make(chan string, 100)
	e := s.openWith(t, func(c *pgxpool.Config) {
		c.ConnConfig.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { others <- n.Channel + " " + n.Payload }
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "listen others_of_"+s.schema)
			return err
		}
		c.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
			return rand.N(2) == 0, nil // by turns it could be always the listener's turn: the pool's polls take turns, too
		}
	})
	notified := make(chan driver.Notice, 100)
	w, err := e.Work(t.Context(), driver.WorkConfig{Name: "w", Kinds: driver.NewKindSet([]string{"k"}), Lease: time.Minute,
		Ahead: time.Second, Retention: time.Hour, Notify: func(n driver.Notice) { notified <- n }})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Fetch(ctx, func([]*driver.Delivery) {}) }()
	s.awaitNotice(t, admin, notified)
	require.Eventually(t, func() bool { return w.Heartbeat(t.Context()) == nil }, patience, time.Millisecond)
	for len(notified) > 0 {
		<-notified
	}
	_, err = admin.Exec(t.Context(), "select pg_notify($1, $2)", "others_of_"+s.schema, `{"notice":{"freed":[{"limit":1}]}}`)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.HasPrefix(<-others, "others_of_") }, patience, time.Millisecond)
	s.awaitNotice(t, admin, notified)
	stop()
	require.NoError(t, <-done)
}

// Jobs run where only a hook gives the rights: the worker keeps its lease over several of them.
func TestRoleOfHookKeepsLease(t *testing.T) {
	t.Parallel()
	s := newStore(server(t))
	admin := s.pool(t)
	s.open(t)
	s.exec(t, admin, "create role app login noinherit; grant tickwheel to app")
	e := s.as("app").openWith(t, func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "set role tickwheel")
			return err
		}
	})
	q, err := durable.Open(t.Context(), e, durable.WithLease(2*time.Second))
	require.NoError(t, err)
	defer q.Close()
	ran := make(chan bool, 1)
	q.Handle("k", func(context.Context, *durable.Attempt) error { ran <- true; return nil })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	_, err = q.Add(t.Context(), durable.Job{Kind: "k", After: 5 * time.Second}) // two leases
	require.NoError(t, err)
	select {
	case <-ran:
	case <-time.After(patience):
		t.Fatal("the job does not run")
	}
	stop()
	require.NoError(t, <-done)
}

// A hung connection is ended, too, if a hook has given it another role than it has logged in as.
func TestHungOfRole(t *testing.T) {
	t.Parallel()
	s := newStore(server(t))
	admin := s.pool(t)
	s.exec(t, admin, postgres.Grants(s.schema)+"; create role works in role SCHEMA_work; create role app login noinherit in role works")
	s.open(t)
	s.exec(t, admin, postgres.Grants(s.schema))
	s = s.as("app")
	s.params += "&role=works"
	e, p := s.behindProxy(t)
	w, err := e.Work(t.Context(), workConfig("w", time.Minute))
	require.NoError(t, err)
	require.NoError(t, w.Heartbeat(t.Context()))
	p.holdNext.Store(1)
	require.Error(t, w.Heartbeat(t.Context()))
	hung := func() (n int) {
		require.NoError(t, admin.QueryRow(t.Context(), "select count(*) from pg_stat_activity where usename = 'app' and state = 'active' and wait_event_type = 'Client'").Scan(&n))
		return n
	}
	require.Equal(t, 1, hung())
	require.Eventually(t, func() bool { e.EndHung(t.Context(), 0); return hung() == 0 }, patience, 10*time.Millisecond)
}
