package jetstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/testservers/ports"
)

// Several Connects at once on servers of which two are not there yet, and which then elect
// a leader, all succeed.
func TestConnectsWhileServersStart(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	c.startNode(t, 0)
	url := c.servers[0].ClientURL()
	const n = 6
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.Timeout(time.Minute))
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		wg.Go(func() {
			e, err := jetstream.Connect(within(t), nc, append([]jetstream.Option{jetstream.WithPartitions(2)}, c.opts...)...)
			if errs[i] = err; err == nil {
				e.Close()
			}
		})
	}
	time.Sleep(3 * time.Second) // they ask, and nobody answers
	c.startNode(t, 1)
	time.Sleep(2 * time.Second)
	c.startNode(t, 2)
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
}

// deaf connects a client and a server that does not hear the first question of an API.
type deaf struct {
	srv  natsServer
	to   string
	once sync.Once
}

func (d *deaf) InProcessConn() (net.Conn, error) {
	c, err := d.srv.InProcessConn()
	return deafConn{c, d}, err
}

type deafConn struct {
	net.Conn
	deaf *deaf
}

// Write gives the first question another subject, to which nobody listens but the test.
func (c deafConn) Write(b []byte) (int, error) {
	if i := bytes.Index(b, []byte("PUB "+c.deaf.to)); i >= 0 {
		c.deaf.once.Do(func() { b = bytes.Replace(b, []byte("PUB $JS"), []byte("PUB $NO"), 1) })
	}
	return c.Conn.Write(b)
}

// A lost request is repeated. A request is lost when the leader that has it fails.
func TestConnectAsksAgain(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	_, err := s.connect(t).Subscribe("$NO.>", func(*nats.Msg) {})
	require.NoError(t, err)
	for _, api := range []string{"$JS.API.STREAM.INFO.", "$JS.API.STREAM.CREATE.", "$JS.API.STREAM.UPDATE."} {
		nc, err := nats.Connect("", nats.InProcessServer(&deaf{srv: s.srv, to: api}), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
		require.NoError(t, err)
		defer nc.Close()
		queue := jetstream.WithQueue(strings.ToLower(strings.Split(api, ".")[3]))
		e, err := jetstream.Connect(within(t), nc, queue)
		require.NoError(t, err, api)
		require.NoError(t, e.Close())
	}
}

// A refusal of the server is an error at once, with its text.
func TestConnectIsRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	began := time.Now()
	_, err := jetstream.Connect(within(t), s.connect(t), jetstream.WithReplicas(3))
	require.ErrorContains(t, err, "replicas > 1 not supported in non-clustered mode")
	require.Less(t, time.Since(began), patience/2, "it does not ask again")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = jetstream.Connect(ctx, s.connect(t))
	require.ErrorIs(t, err, context.Canceled)
}

// What is asked for and what is there are compared; what is not asked for is taken as it
// is there.
func TestConnectCompares(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	_, err := jetstream.Connect(within(t), s.connect(t), jetstream.WithExistingOnly(), jetstream.WithQueue("q"))
	require.ErrorIs(t, err, jetstream.ErrNoQueue)
	require.ErrorContains(t, err, `"q"`)
	connect := func(opts ...jetstream.Option) error {
		e, err := jetstream.Connect(within(t), s.connect(t), append([]jetstream.Option{jetstream.WithQueue("q")}, opts...)...)
		if err == nil {
			err = e.Close()
		}
		return err
	}
	require.ErrorIs(t, connect(jetstream.WithExistingOnly()), jetstream.ErrNoQueue, "the first one has made nothing")
	buckets := jetstream.WithBuckets(jetstream.Buckets{Near: time.Second, Far: time.Minute, Lead: 10 * time.Second, Settle: time.Second})
	require.NoError(t, connect(jetstream.WithPartitions(2), buckets, jetstream.WithMaxBytes(10<<20)))
	require.NoError(t, connect())
	require.NoError(t, connect(jetstream.WithExistingOnly(), jetstream.WithReplicas(1), jetstream.WithPartitions(2), buckets, jetstream.WithMaxBytes(10<<20)))
	require.NoError(t, connect(jetstream.WithPartitions(3), jetstream.WithPartitions(2)), "the last one counts")
	for text, opt := range map[string]jetstream.Option{
		"Replicas: the stream has 1, the program asks for 3":                              jetstream.WithReplicas(3),
		"Partitions: the stream has 2, the program asks for 1":                            jetstream.WithPartitions(1),
		"MaxBytes: the stream has 10485760, the program asks for 20971520":                jetstream.WithMaxBytes(20 << 20),
		"the stream has 1000000 60000000 10000000 1000000, the program asks for 2000000 ": jetstream.WithBuckets(jetstream.Buckets{Near: 2 * time.Second, Far: time.Minute, Lead: 10 * time.Second, Settle: time.Second}),
	} {
		require.ErrorContains(t, connect(opt), text)
	}
	require.NoError(t, connect(jetstream.Own(), jetstream.WithExistingOnly(), jetstream.WithMaxBytes(20<<20)))
	require.NoError(t, connect(jetstream.WithMaxBytes(10<<20)), "it has stayed")
	require.NoError(t, connect(jetstream.Own(), jetstream.WithMaxBytes(20<<20)))
	require.NoError(t, connect(jetstream.WithMaxBytes(20<<20)), "it was changed")
}

// Connect waits for the first server of a connection that is made in the background.
func TestConnectBeforeTheServer(t *testing.T) {
	t.Parallel()
	reserved, err := ports.Reserve(1)
	require.NoError(t, err)
	t.Cleanup(reserved.Release)
	nc, err := nats.Connect(fmt.Sprint("nats://127.0.0.1:", reserved.Ports[0]), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(10*time.Millisecond), nats.Timeout(time.Minute))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = jetstream.Connect(short, nc)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	ctx, done := within(t), make(chan error, 1)
	go func() {
		e, err := jetstream.Connect(ctx, nc)
		if err == nil {
			err = e.Close()
		}
		done <- err
	}()
	srv, err := server.NewServer(&server.Options{
		ServerName: "late", Host: "127.0.0.1", Port: reserved.Ports[0], NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(),
	})
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.NoError(t, <-done)
}

// A connection that will give up is refused.
func TestConnectionThatGivesUp(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for _, opt := range []nats.Option{nats.MaxReconnects(60), nats.MaxReconnects(0), nats.NoReconnect()} {
		nc, err := nats.Connect("", nats.InProcessServer(s.srv), opt, nats.Timeout(time.Minute))
		require.NoError(t, err)
		defer nc.Close()
		_, err = jetstream.Connect(within(t), nc)
		require.ErrorContains(t, err, "nats.MaxReconnects(-1)")
	}
}

// Run ends when the connection is closed for good, as nats.go does when it has tried
// often enough to connect again.
func TestConnectionIsClosedForGood(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	nc, err := nats.Connect("", nats.InProcessServer(s.srv), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
	require.NoError(t, err)
	e, err := jetstream.Connect(t.Context(), nc, s.opts...)
	require.NoError(t, err)
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	defer q.Close()
	began, ended := make(chan bool), make(chan error, 1)
	q.Handle("k", func(ctx context.Context, _ *durable.Attempt) error {
		close(began)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil
	})
	_, err = q.Add(t.Context(), durable.Job{Kind: "k"})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- q.Run(t.Context()) }()
	<-began
	nc.Close()
	require.ErrorIs(t, <-done, durable.ErrClosed)
	require.ErrorIs(t, <-ended, durable.ErrClosed)
}
