package jetstream

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// A request that its messages use up to the last byte ends at once. The server does not say
// that it has ended.
func TestRequestUsedUp(t *testing.T) {
	p := newPart(t, soon)
	now := p.Now().Truncate(time.Microsecond)
	b := p.nearOf(now)
	const jobs = 3
	for i := range jobs {
		r := recordAt(string(rune('a'+i)), now, now)
		require.NoError(t, p.Write(t.Context(), stream.Write{Subject: p.queueSubject(b, anyQueue), Data: encode(&r, nil)}))
	}
	f := newFetcher(p, newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{Lease: time.Minute}), nil)
	require.NoError(t, f.consumer(t.Context(), "c", p.queueSubject(b, anyQueue)))
	bytes := 0
	request := stream.PullRequest{Batch: jobs, Expires: time.Minute, MaxBytes: readSize}
	got, err := p.Pull("c", request, func(some []*nats.Msg) {
		for _, m := range some {
			bytes += m.Size()
			require.NoError(t, m.Respond([]byte("-NAK")))
		}
	})
	require.NoError(t, err)
	require.Equal(t, jobs, got)
	request.Batch, request.MaxBytes = 2*jobs, bytes // their sizes are the same again
	began := time.Now()
	got, err = p.Pull("c", request, func([]*nats.Msg) {})
	require.NoError(t, err)
	require.Equal(t, jobs, got)
	require.Less(t, time.Since(began), request.Expires)
}

// A reader that waits at a queue takes readSize only to read a job that does not fit into its request.
func TestFetchNeedsNoShare(t *testing.T) {
	p := newPart(t, WithBuckets(Buckets{Near: time.Hour, Far: 24 * time.Hour, Lead: time.Minute, Settle: time.Minute}))
	now := p.Now().Truncate(time.Microsecond)
	at := spot{p.nearOf(now), anyQueue}
	store := func(id string, payload int) {
		r := recordAt(id, now, now)
		r.Payload = make([]byte, payload)
		require.NoError(t, p.Write(t.Context(), stream.Write{Subject: p.queueSubject(at.bucket, at.queue), Data: encode(&r, nil)}))
	}
	kind := recordAt("", now, now).Kind
	w := newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{Lease: time.Minute, Kinds: driver.NewKindSet([]string{kind})})
	given := make(chan string, 10)
	f := newFetcher(p, w, func(held []*driver.Delivery) {
		for _, h := range held {
			given <- h.Record.ID
		}
	})
	var r reader
	require.True(t, w.read.take(t.Context(), readBytes, firstTurn))
	require.NoError(t, f.fetch(t.Context(), at, &r), "nothing is there")
	store("small", 10)
	require.NoError(t, f.fetch(t.Context(), at, &r))
	require.Equal(t, "small", <-given)
	store("large", 2*waitSize)
	fetched := make(chan error, 1)
	go func() { fetched <- f.fetch(t.Context(), at, &r) }()
	require.Eventually(t, func() bool {
		w.read.mu.Lock()
		defer w.read.mu.Unlock()
		return len(w.read.turns) == 1
	}, 2*time.Minute, time.Millisecond, "it waits for the budget")
	w.read.give(readBytes)
	require.NoError(t, <-fetched)
	require.Equal(t, "large", <-given)
}

// A reading whose request or answer is lost is repeated.
func TestPageLost(t *testing.T) {
	t.Parallel()
	l := &swallowing{srv: newServer(t)}
	p := connectPart(t, l)
	now := p.Now().Truncate(time.Microsecond)
	r := driver.Record{ID: "x", Job: driver.Job{Kind: "k", MaxAttempts: 1}, Due: now.Add(time.Minute), Born: now}
	require.NoError(t, p.insertOne(t.Context(), r))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	l.request.Store(true)
	_, _, err := p.find(ctx, address{born: now.UnixMicro()}, location{id: "x", bucket: p.nearOf(r.Due)}, 0)
	require.NoError(t, err)
	require.False(t, l.request.Load())
}

// swallowing loses one request for a page of messages.
type swallowing struct {
	srv     *server.Server
	request atomic.Bool
}

func (l *swallowing) InProcessConn() (net.Conn, error) {
	c, err := l.srv.InProcessConn()
	return swallowingConn{c, l}, err
}

type swallowingConn struct {
	net.Conn
	of *swallowing
}

func (c swallowingConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("DIRECT.GET.TW_default_0 ")) && c.of.request.CompareAndSwap(true, false) {
		return len(b), nil
	}
	return c.Conn.Write(b)
}
