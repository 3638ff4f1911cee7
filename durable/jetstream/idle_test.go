package jetstream

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// alone is a Queue that has the server of its engine alone, as an embedded one has.
type alone struct {
	*durable.Queue
	srv *server.Server
	ran chan durable.Ref
}

// newAlone returns one whose lease is so long that a job which waits for the end of it fails a test.
func newAlone(t *testing.T) *alone {
	srv := newServer(t)
	nc, err := nats.Connect("", nats.InProcessServer(srv), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	e, err := Connect(t.Context(), nc, Own())
	require.NoError(t, err)
	q, err := durable.Open(t.Context(), e, durable.WithLease(time.Hour))
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	a := &alone{q, srv, make(chan durable.Ref, 100)}
	q.Handle("k", func(_ context.Context, at *durable.Attempt) error { a.ran <- at.Ref; return nil })
	return a
}

// work begins to run jobs, until end is called.
func (a *alone) work(t *testing.T) (end func()) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return func() {
		stop()
		require.NoError(t, <-done)
	}
}

// runs waits for a job.
func (a *alone) runs(t *testing.T, ref durable.Ref) {
	t.Helper()
	select {
	case ran := <-a.ran:
		require.Equal(t, ref, ran)
	case <-time.After(5 * time.Minute):
		require.Fail(t, "it does not run")
	}
}

// requests returns how many messages clients have sent to the server.
func (a *alone) requests(t *testing.T) int64 {
	v, err := a.srv.Varz(nil)
	require.NoError(t, err)
	return v.InMsgs
}

// A worker with nothing to do makes few requests, and runs a job that comes.
func TestIdle(t *testing.T) {
	t.Parallel()
	a := newAlone(t)
	defer a.work(t)()
	time.Sleep(3 * time.Second) // it starts
	for try := 1; ; try++ {     // a busy machine may still be starting it
		before, began := a.requests(t), time.Now()
		time.Sleep(10 * time.Second)
		rate := float64(a.requests(t)-before) / time.Since(began).Seconds()
		t.Logf("%.1f requests a second", rate)
		require.NotZero(t, rate)
		if rate < mostRequests {
			break
		}
		require.Less(t, try, 6, "it is busy each time")
	}
	for _, after := range []time.Duration{0, 2 * time.Second, 0} {
		ref, err := a.Add(t.Context(), durable.Job{Kind: "k", After: after})
		require.NoError(t, err)
		a.runs(t, ref)
	}
}

// mostRequests is a generous bound on the requests of an idle worker, in a second.
const mostRequests = 10.0

// A worker that ends while it waits for jobs loses none that comes at that moment: the next one runs it, before the lease
// of the first is over.
func TestIdleEnds(t *testing.T) {
	t.Parallel()
	a := newAlone(t)
	for range 10 {
		end := a.work(t)
		time.Sleep(100 * time.Millisecond) // most often it waits by now
		added := make(chan durable.Ref)
		go func() {
			ref, err := a.Add(context.WithoutCancel(t.Context()), durable.Job{Kind: "k"})
			if err != nil {
				t.Error(err)
			}
			added <- ref
		}()
		end()
		end = a.work(t)
		a.runs(t, <-added)
		end()
	}
}

// A poll of a server of the same process finds out that something was written.
func TestIdleSeesWrites(t *testing.T) {
	t.Parallel()
	p := newPart(t, Own())
	f := newFetcher(p, newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{Lease: time.Minute}), nil)
	for range 3 {
		require.NoError(t, f.seen.ask(t.Context()))
		was := f.Since()
		require.NoError(t, f.seen.ask(t.Context()))
		require.Equal(t, was, f.Since(), "nothing was written")
		require.NoError(t, p.Write(t.Context(), stream.Write{Subject: p.subject("x.a"), Data: []byte("x")}))
		require.NoError(t, f.seen.ask(t.Context()))
		require.True(t, f.Since().After(was))
	}
}
