package postgres_test

import (
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/postgres"
)

// deaf returns an engine that reaches the server by way of a proxy, which drops announcements
// without a word, as those do that share connections.
func (s *store) deaf(t *testing.T) *postgres.Engine {
	c, err := pgxpool.ParseConfig(s.srv.DSN())
	require.NoError(t, err)
	c.ConnConfig.Port = proxy(t, net.JoinHostPort(c.ConnConfig.Host, strconv.Itoa(int(c.ConnConfig.Port))))
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	e, err := postgres.Connect(t.Context(), pool, postgres.Schema(s.schema))
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

// proxy returns a port that leads to a server, without its announcements.
func proxy(t *testing.T, server string) uint16 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				return
			}
			go func() { io.Copy(up, client); up.Close() }()
			go func() { dropAnnouncements(client, up); client.Close() }()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// dropAnnouncements copies messages, each a letter, its length and the rest, but those of type A.
func dropAnnouncements(to io.Writer, from io.Reader) {
	for head := make([]byte, 5); ; {
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		m := make([]byte, 1+binary.BigEndian.Uint32(head[1:]))
		copy(m, head)
		if _, err := io.ReadFull(from, m[5:]); err != nil {
			return
		}
		if head[0] == 'A' {
			continue
		}
		if _, err := to.Write(m); err != nil {
			return
		}
	}
}
