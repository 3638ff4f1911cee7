package jetstream_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/enginetest"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// store is a server with one queue, in a directory of the test's.
type store struct {
	dir  string
	srv  *server.Server
	opts []jetstream.Option
}

// newStore returns a store whose buckets are small, so that jobs some seconds ahead cascade
// and buckets close while a test runs.
func newStore(t testing.TB, opts ...jetstream.Option) *store {
	small := jetstream.Buckets(250*time.Millisecond, 2*time.Second, 500*time.Millisecond, time.Second)
	s := &store{dir: t.TempDir(), opts: append([]jetstream.Option{small}, opts...)}
	s.start(t)
	t.Cleanup(s.stop)
	return s
}

func (s *store) start(t testing.TB) {
	srv, err := server.NewServer(&server.Options{
		ServerName: "test", DontListen: true, NoSigs: true, NoLog: true, NoSystemAccount: true, JetStream: true,
		StoreDir: s.dir, JetStreamMaxStore: 4 << 30, JetStreamMaxMemory: 1 << 30, DisableJetStreamBanner: true,
	})
	require.NoError(t, err)
	srv.Start()
	require.True(t, srv.ReadyForConnections(20*time.Second))
	s.srv = srv
}

func (s *store) stop() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}

func (s *store) Restart(t testing.TB) {
	s.stop()
	s.start(t)
}

func (s *store) connect(t testing.TB) *nats.Conn {
	nc, err := nats.Connect("", nats.InProcessServer(s.srv), nats.MaxReconnects(-1))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

func (s *store) Open(t testing.TB) durable.Engine {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	e, err := jetstream.Connect(ctx, s.connect(t), s.opts...)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

func TestConformance(t *testing.T) {
	enginetest.Run(t, func(t testing.TB) enginetest.Store { return newStore(t) })
}
