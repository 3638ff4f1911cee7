package postgres_test

import (
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/postgres"
)

// proxy is between an engine and its server. It drops announcements without a word, as
// those do that share connections, and cuts a connection when it is told to.
type proxy struct {
	pool     *pgxpool.Pool // of connections through it
	listener net.Listener
	server   string

	cutNext atomic.Bool // what is done next is committed, and its answer lost
	cuts    atomic.Int64
}

// behindProxy returns an engine that reaches the server by way of a proxy.
func (s *store) behindProxy(t *testing.T) (*postgres.Engine, *proxy) {
	c, err := pgxpool.ParseConfig(s.srv.DSN())
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	p := &proxy{listener: l, server: net.JoinHostPort(c.ConnConfig.Host, strconv.Itoa(int(c.ConnConfig.Port)))}
	go p.serve()
	c.ConnConfig.Port = uint16(l.Addr().(*net.TCPAddr).Port)
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	p.pool = pool
	e, err := postgres.Connect(t.Context(), pool, postgres.Schema(s.schema))
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	require.NoError(t, e.Migrate(t.Context()))
	return e, p
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
		go func() { io.Copy(server, client); server.Close() }()
		go func() { p.answers(client, server); client.Close(); server.Close() }()
	}
}

// answers copies messages, each a letter, its length and the rest, but those of type A.
// If it is to cut it drops all from a first C, that a statement is complete, to the Z
// that follows the commit, and returns.
func (p *proxy) answers(to io.Writer, from io.Reader) {
	cutting := false
	for head := make([]byte, 5); ; {
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		m := make([]byte, 1+binary.BigEndian.Uint32(head[1:]))
		copy(m, head)
		if _, err := io.ReadFull(from, m[5:]); err != nil {
			return
		}
		cutting = cutting || head[0] == 'C' && p.cutNext.CompareAndSwap(true, false)
		switch {
		case cutting && head[0] == 'Z':
			p.cuts.Add(1)
			return
		case cutting || head[0] == 'A':
			continue
		}
		if _, err := to.Write(m); err != nil {
			return
		}
	}
}
