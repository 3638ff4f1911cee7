package postgres_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
	"github.com/tickwheel/tickwheel/durable/postgres"
	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// patience limits how long a test waits for an event. It is a bound, not a measure.
const patience = 5 * time.Minute

// store is a schema of a server.
type store struct {
	srv    *pgserver.Server
	schema string
	shared bool   // with the stores of tests that run at the same time
	dsn    string // another way to the server, if any
	params string // of the pool
}

var schemas atomic.Int64

func newStore(srv *pgserver.Server) *store {
	return &store{srv: srv, schema: fmt.Sprintf("queue_%d", schemas.Add(1))}
}

func (s *store) pool(t testing.TB) *pgxpool.Pool {
	dsn := s.dsn
	if dsn == "" {
		dsn = s.srv.DSN()
	}
	pool, err := pgxpool.New(t.Context(), dsn+"&pool_max_conns=8"+s.params)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func (s *store) Open(t testing.TB) driver.Engine { return s.open(t) }

func (s *store) open(t testing.TB) *postgres.Engine {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pool := s.pool(t)
	connect := func() (*postgres.Engine, error) {
		e, err := postgres.Connect(ctx, pool, postgres.WithSchema(s.schema))
		if err == nil {
			err = e.Migrate(ctx)
		}
		return e, err
	}
	e, err := connect()
	for ctx.Err() == nil && err != nil { // the server, or what is between, may be starting again
		time.Sleep(100 * time.Millisecond)
		e, err = connect()
	}
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

// OpenClocked makes the test a Clocked: by functions that tell the time and are found before the server's own.
func (s *store) OpenClocked(t testing.TB, ahead time.Duration) (driver.Engine, func(time.Duration)) {
	name := fmt.Sprintf("clock_%d", schemas.Add(1))
	pool := s.pool(t)
	do := func(sql string, args ...any) {
		_, err := pool.Exec(t.Context(), strings.ReplaceAll(sql, "clock_0", name), args...)
		require.NoError(t, err)
	}
	do(`create schema clock_0;
		create table clock_0.setting (ahead interval not null);
		insert into clock_0.setting values ('0');
		create function clock_0.now() returns timestamptz stable language sql
			as 'select pg_catalog.now() + ahead from clock_0.setting';
		create function clock_0.clock_timestamp() returns timestamptz volatile language sql
			as 'select pg_catalog.clock_timestamp() + ahead from clock_0.setting';`)
	set := func(ahead time.Duration) {
		do("update clock_0.setting set ahead = $1 * interval '1 second'", ahead.Seconds())
	}
	set(ahead)
	clocked := *s
	clocked.params += "&search_path=" + name + ",pg_catalog,public"
	return clocked.open(t), set
}

// OpenSilent makes the test a Silencer: by a proxy that passes nothing on while it is
// locked, and reads nothing.
func (s *store) OpenSilent(t testing.TB) (driver.Engine, enginetest.Line) {
	c, err := pgxpool.ParseConfig(s.srv.DSN())
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	address := net.JoinHostPort(c.ConnConfig.Host, strconv.Itoa(int(c.ConnConfig.Port)))
	var wall sync.RWMutex
	var severed atomic.Int64
	pass := func(to, from net.Conn, made int64, told bool) {
		for b := make([]byte, 32<<10); ; {
			n, err := from.Read(b)
			wall.RLock()
			if err == nil && severed.Load() == made {
				_, err = to.Write(b[:n])
			}
			wall.RUnlock()
			if err != nil {
				if told || severed.Load() == made {
					to.Close()
				}
				return
			}
		}
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", address)
			if err != nil {
				client.Close()
				continue
			}
			made := severed.Load()
			go pass(server, client, made, true)
			go pass(client, server, made, false) // of what is severed the client is not told
		}
	}()
	c.ConnConfig.Port = uint16(l.Addr().(*net.TCPAddr).Port)
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	engine, err := postgres.Connect(t.Context(), pool, postgres.WithSchema(s.schema))
	require.NoError(t, err)
	t.Cleanup(func() { engine.Close() })
	require.NoError(t, engine.Migrate(t.Context()))
	return engine, enginetest.Line{Silence: wall.Lock, Heal: wall.Unlock, Sever: func() { severed.Add(1) }}
}

// listen returns what waits for the next announcement of the queue.
func (s *store) listen(t testing.TB) (wait func()) {
	c, err := pgx.Connect(t.Context(), s.srv.DSN())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	_, err = c.Exec(t.Context(), "listen "+s.schema)
	require.NoError(t, err)
	return func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := c.WaitForNotification(ctx)
		require.NoError(t, err)
	}
}

func (s *store) Restart(t testing.TB) {
	require.False(t, s.shared, "other tests run on the server that this one would kill")
	require.NoError(t, s.srv.Kill())
	require.NoError(t, s.srv.Start())
}

// room is the setting for the connections of all tests that run at once.
const room = "max_connections=300"

// server returns a server for a test that kills it, makes roles, ends connections, or counts the
// locks of the server; all other tests share one.
func server(t testing.TB) *pgserver.Server { return pgserver.Test(t, room) }

var shared = pgserver.Shared{Settings: []string{room}}

// sharedStore returns a schema of the server that tests share.
func sharedStore(t testing.TB) *store {
	s := newStore(shared.Test(t))
	s.shared = true
	return s
}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// All stores are on one server, but those of the tests that kill it.
func TestConformance(t *testing.T) {
	t.Parallel()
	srv := server(t)
	enginetest.Run(t, func(t testing.TB) enginetest.Store {
		switch path.Base(t.Name()) {
		case "Restart", "FlowControlStored":
			return newStore(server(t))
		}
		s := newStore(srv)
		s.shared = true
		return s
	})
}

// Pools that prepare nothing, as behind a proxy that shares connections, send arguments
// in other ways: what they say is the same.
func TestConformanceWithoutPreparing(t *testing.T) {
	t.Parallel()
	srv := server(t)
	for _, mode := range []string{"exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			enginetest.RunOnly(t, func(testing.TB) enginetest.Store {
				s := newStore(srv)
				s.params = "&default_query_exec_mode=" + mode
				return s
			}, "BadInput", "Keys", "Redrive", "Deaths", "ScheduleShared")
		})
	}
}
