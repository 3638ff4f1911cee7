package jetstream

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// newPart returns a stream of its own, on a server of its own.
func newPart(t *testing.T, opts ...Option) *part { return connectPart(t, newServer(t), opts...) }

func newServer(t *testing.T) *server.Server {
	srv, err := server.NewServer(&server.Options{
		ServerName: "test", DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(),
	})
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(2*time.Minute))
	return srv
}

func connectPart(t *testing.T, srv nats.InProcessConnProvider, opts ...Option) *part {
	nc, err := nats.Connect("", nats.InProcessServer(srv), nats.MaxReconnects(-1))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	e, err := Connect(t.Context(), nc, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e.(*engine).parts[0]
}

// The write of a Cancel may be held up until its job has run and that is forgotten, and its
// answer be lost. The Cancel that then finds what it has written has not canceled the job.
func TestCancelFindsItsOwnLateWrite(t *testing.T) {
	for closed, want := range map[bool]bool{false: true, true: false} {
		p := newPart(t)
		now := time.Now().Truncate(time.Microsecond)
		r := driver.Record{ID: "x", Kind: "k", At: now, MaxAttempts: 1, Due: now, Born: now}
		a := address{bucket: p.nearOf(now), born: now.UnixMicro(), id: r.ID}
		require.NoError(t, p.insert(t.Context(), []driver.Record{r})[0])
		if closed {
			require.NoError(t, p.write(t.Context(), p.mark(p.nearMark(a.bucket))))
			require.NoError(t, p.purge(t.Context(), p.nearSubject(a.bucket, "k"), 0))
		}
		at := place{id: a.id, bucket: a.bucket}
		late := write{subject: p.fateSubject(at), data: status{fate: canceled, token: "t"}.encode(), last: seq(0)}
		require.NoError(t, p.write(t.Context(), late))
		ok, err := p.cancelAs(t.Context(), a, "t")
		require.NoError(t, err)
		require.Equal(t, want, ok, "closed: %v", closed)
		s, err := p.status(t.Context(), at)
		require.NoError(t, err)
		require.Equal(t, want, s.fate == canceled, "what it has written is removed")
		ok, err = p.cancelAs(t.Context(), a, "another")
		require.NoError(t, err)
		require.False(t, ok)
	}
}
