package postgres_test

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/postgres"
)

// proxy is between an engine and its server. It drops announcements without a word, as
// those do that share connections, and cuts a connection when it is told to, or leaves it
// half open.
type proxy struct {
	pool     *pgxpool.Pool // of connections through it
	listener net.Listener
	server   string

	cutNext atomic.Bool // what is done next is committed, and its answer lost
	cuts    atomic.Int64
	spared  sync.Map // of the client's addresses: connections whose statement is not to be cut or held

	holdNext atomic.Int64 // if positive: half-open a connection after so many statements of a batch
	holds    atomic.Int64
}

// behindProxy returns an engine that reaches the server by way of a proxy.
func (s *store) behindProxy(t testing.TB) (*postgres.Engine, *proxy) {
	c, err := pgxpool.ParseConfig(s.srv.DSN() + s.params)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	p := &proxy{listener: l, server: net.JoinHostPort(c.ConnConfig.Host, strconv.Itoa(int(c.ConnConfig.Port)))}
	go p.serve()
	c.ConnConfig.Port = uint16(l.Addr().(*net.TCPAddr).Port)
	c.ConnConfig.Tracer = p
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	p.pool = pool
	e, err := postgres.Connect(t.Context(), pool, postgres.WithSchema(s.schema))
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	require.NoError(t, e.Migrate(t.Context()))
	return e, p
}

// meant is the key of contexts in which the clock is read that is to be cut or held.
type meant struct{}

// TraceQueryStart and TraceQueryEnd implement pgx.QueryTracer. An engine reads the version of its
// schema every two seconds, and a queue its clock twice a second: these are not to be cut or held.
func (p *proxy) TraceQueryStart(ctx context.Context, c *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "pg_class") || strings.Contains(q.SQL, "select version, oldest") ||
		q.SQL == "select clock_timestamp()" && ctx.Value(meant{}) == nil {
		p.spared.Store(c.PgConn().Conn().LocalAddr().String(), true)
	}
	return ctx
}

func (p *proxy) TraceQueryEnd(_ context.Context, c *pgx.Conn, _ pgx.TraceQueryEndData) {
	p.spared.Delete(c.PgConn().Conn().LocalAddr().String())
}

func (p *proxy) spares(client net.Conn) bool {
	_, ok := p.spared.Load(client.RemoteAddr().String())
	return ok
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			client.Close()
			return
		}
		go func() {
			if !p.questions(server, client) {
				server.Close()
			}
		}()
		go func() { p.answers(client, server); client.Close(); server.Close() }()
	}
}

// questions copies what a client says: a first message without a letter, and messages. If
// it is to hold it drops the end of a batch that has so many statements, and all that
// follows, and returns true: the server waits for it.
func (p *proxy) questions(to io.Writer, from net.Conn) (held bool) {
	size := make([]byte, 4)
	if _, err := io.ReadFull(from, size); err != nil {
		return false
	}
	if _, err := to.Write(size); err != nil {
		return false
	}
	if _, err := io.CopyN(to, from, int64(binary.BigEndian.Uint32(size))-4); err != nil {
		return false
	}
	var statements int64
	for head := make([]byte, 5); ; {
		if _, err := io.ReadFull(from, head); err != nil {
			return false
		}
		switch head[0] {
		case 'E':
			statements++
		case 'S':
			if n := p.holdNext.Load(); n > 0 && statements == n && !p.spares(from) && p.holdNext.CompareAndSwap(n, 0) {
				p.holds.Add(1)
				io.Copy(io.Discard, from)
				return true
			}
			statements = 0
		}
		if _, err := to.Write(head); err != nil {
			return false
		}
		if _, err := io.CopyN(to, from, int64(binary.BigEndian.Uint32(head[1:]))-4); err != nil {
			return false
		}
	}
}

// answers copies messages, each a letter, its length and the rest, but those of type A.
// It passes on one answer at a time, up to its Z, which follows the commit. If it is to cut
// it drops an answer that has a C, that a statement is complete, and returns: all of it, or,
// as it falls, what comes from the C on. So the client sees the end while it waits for a
// statement's answer, or in the middle of one.
func (p *proxy) answers(to net.Conn, from io.Reader) {
	var answer []byte
	complete := -1 // where the first C is
	for head := make([]byte, 5); ; {
		if _, err := io.ReadFull(from, head); err != nil {
			to.Write(answer) // the server's last words have no Z
			return
		}
		m := make([]byte, 1+binary.BigEndian.Uint32(head[1:]))
		copy(m, head)
		if _, err := io.ReadFull(from, m[5:]); err != nil {
			return
		}
		switch {
		case head[0] == 'A':
			continue
		case head[0] == 'C' && complete < 0:
			complete = len(answer)
		}
		answer = append(answer, m...)
		if head[0] != 'Z' {
			continue
		}
		cut := complete >= 0 && !p.spares(to) && p.cutNext.CompareAndSwap(true, false)
		if cut {
			answer = answer[:complete*rand.N(2)]
		}
		_, err := to.Write(answer)
		if cut {
			p.cuts.Add(1)
		}
		if cut || err != nil {
			return
		}
		answer, complete = answer[:0], -1
	}
}
