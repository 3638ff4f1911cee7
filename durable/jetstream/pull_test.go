package jetstream_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// meter connects a client and a server, and counts what the client has received.
type meter struct {
	srv natsServer
	n   atomic.Int64
}

func (m *meter) InProcessConn() (net.Conn, error) {
	c, err := m.srv.InProcessConn()
	return meteredConn{c, m}, err
}

type meteredConn struct {
	net.Conn
	meter *meter
}

func (c meteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.meter.n.Add(int64(n))
	return n, err
}

// fetching is a worker's Fetch, whose jobs are handed on unless it is paused.
type fetching struct {
	meter  meter
	paused sync.RWMutex

	mu    sync.Mutex
	got   map[string]bool
	bytes int64 // handed on
}

func (f *fetching) give(held []*driver.Delivery) {
	f.paused.RLock()
	defer f.paused.RUnlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range held {
		f.got[h.Record.ID] = true
		f.bytes += int64(len(h.Record.Payload))
	}
}

func (f *fetching) have() (int, int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.got), f.meter.n.Load() - f.bytes
}

// largeJobs returns records that have been due for up to so long, or are due in as long if
// that is negative.
func largeJobs(n int, ago time.Duration) []driver.Record {
	recs := make([]driver.Record, n)
	now := time.Now().Truncate(time.Microsecond)
	for i := range recs {
		at := now.Add(-ago * time.Duration(i+1) / time.Duration(n)).Truncate(time.Microsecond)
		recs[i] = driver.Record{ID: rand.Text(), Job: driver.Job{Kind: "k", At: at, MaxAttempts: 1, Payload: make([]byte, 250<<10)}, Due: at, Born: now}
	}
	return recs
}

func insert(t *testing.T, e driver.Engine, recs []driver.Record) {
	for len(recs) > 0 {
		n := min(16, len(recs))
		_, errs := e.Insert(within(t), recs[:n])
		for _, err := range errs {
			require.NoError(t, err)
		}
		recs = recs[n:]
	}
}

// However large and many the jobs are, and over how many buckets and partitions, what was
// fetched and not handed on yet is bounded; and all come.
func TestFetchedIsBounded(t *testing.T) {
	t.Parallel()
	s := newStore(t, jetstream.WithPartitions(2))
	f := &fetching{meter: meter{srv: s.srv}, got: map[string]bool{}}
	nc, err := nats.Connect("", nats.InProcessServer(&f.meter), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
	require.NoError(t, err)
	defer nc.Close()
	e, err := jetstream.Connect(within(t), nc, s.opts...)
	require.NoError(t, err)
	defer e.Close()
	const overdue, ahead = 120, 16
	insert(t, e, largeJobs(overdue, 6*time.Second))
	w, err := e.Work(within(t), driver.WorkConfig{Name: "w", Kinds: driver.NewKindSet([]string{"k"}), Lease: 20 * time.Second, Ahead: 2 * time.Second, Retention: time.Hour})
	require.NoError(t, err)
	f.meter.n.Store(0)
	f.paused.Lock()
	ctx, stop := context.WithCancel(t.Context())
	fed := make(chan error, 1)
	go func() { // again where the server did not answer in time
		for {
			err := w.Fetch(ctx, f.give)
			if !errors.Is(err, context.DeadlineExceeded) {
				fed <- err
				return
			}
		}
	}()
	const most = 11 << 20 // and a little for what is said besides
	last, since, pending := int64(0), time.Now(), int64(0)
	for end := time.Now().Add(patience); (pending <= 1<<20 || time.Since(since) < 3*time.Second) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		_, pending = f.have()
		require.Less(t, pending, int64(most), "fetched, and not handed on")
		if pending > last+200<<10 { // a job has more, and what is said besides is less
			last, since = pending, time.Now()
		}
	}
	require.Greater(t, pending, int64(1<<20), "it fetches")
	f.paused.Unlock()
	insert(t, e, largeJobs(ahead, -4*time.Second)) // some are moved from a far bucket, some waited for
	require.Eventually(t, func() bool {
		n, _ := f.have()
		return n == overdue+ahead
	}, patience, 10*time.Millisecond, "all come")
	stop()
	require.NoError(t, <-fed)
}
