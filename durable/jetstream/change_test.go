package jetstream

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// newPart returns a stream of its own, on a server of its own.
func newPart(t testing.TB, opts ...Option) *part { return connectPart(t, newServer(t), opts...) }

func newServer(t testing.TB) *server.Server { return serverOn(t, t.TempDir()) }

// serverOn starts a server on what another one has stored.
func serverOn(t testing.TB, dir string) *server.Server {
	srv, err := server.NewServer(&server.Options{
		ServerName: "test", DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir,
	})
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(2*time.Minute))
	return srv
}

func connectPart(t testing.TB, srv nats.InProcessConnProvider, opts ...Option) *part {
	nc, err := nats.Connect("", nats.InProcessServer(srv), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	e, err := Connect(t.Context(), nc, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e.(*engine).parts[0]
}

func (p *part) insertOne(ctx context.Context, r driver.Record) error {
	_, errs := p.inserts.insert(ctx, []driver.Record{r})
	return errs[0]
}

// The write of a Cancel may be held up until its job has run and that is forgotten, and its
// answer be lost. The Cancel that then finds what it has written has not canceled the job.
func TestCancelFindsItsOwnLateWrite(t *testing.T) {
	for closed, want := range map[bool]bool{false: true, true: false} {
		p := newPart(t)
		now := time.Now().Truncate(time.Microsecond)
		r := driver.Record{ID: "x", Job: driver.Job{Kind: "k", At: now, MaxAttempts: 1}, Due: now, Born: now}
		a := address{bucket: p.nearOf(now), born: now.UnixMicro(), id: r.ID}
		require.NoError(t, p.insertOne(t.Context(), r))
		if closed {
			require.NoError(t, p.Write(t.Context(), p.mark(p.nearMark(a.bucket))))
			require.NoError(t, p.PurgeAll(t.Context(), p.queues.nearSubject(a.bucket, "k")))
		}
		at := location{id: a.id, bucket: a.bucket}
		late := stream.Write{Subject: p.statusSubject(at), Data: status{fate: canceled, token: "t"}.encode(), Last: stream.Seq(0)}
		require.NoError(t, p.Write(t.Context(), late))
		ok, err := p.changes.cancelAs(t.Context(), a, "t")
		require.NoError(t, err)
		require.Equal(t, want, ok, "closed: %v", closed)
		s, err := p.status(t.Context(), at)
		require.NoError(t, err)
		require.Equal(t, want, s.fate == canceled, "what it has written is removed")
		ok, err = p.changes.cancelAs(t.Context(), a, "another")
		require.NoError(t, err)
		require.False(t, ok)
	}
}

// A canceled, moved or replaced job leaves its far bucket at once, with its payload, and its key and
// its forward with it.
func TestLeavesFarBucket(t *testing.T) {
	p := newPart(t)
	now := time.Now().Truncate(time.Microsecond)
	size := func() uint64 {
		_, err := p.Info(t.Context(), "")
		require.NoError(t, err)
		return p.Bytes.Load()
	}
	has := func(level string) int {
		info, err := p.Info(t.Context(), p.subject(level)+".>")
		require.NoError(t, err)
		return len(info.Subjects)
	}
	empty := size()
	add := func(id, key string) address {
		r := driver.Record{ID: id, Job: driver.Job{Kind: "k", Key: key, Payload: make([]byte, 100<<10), MaxAttempts: 1}, Due: now.Add(30 * 24 * time.Hour), Born: now}
		require.NoError(t, p.insertOne(t.Context(), r))
		return address{bucket: p.nearOf(r.Due), born: now.UnixMicro(), id: id}
	}
	moved, stays := add("moved", ""), add("stays", "")
	for i := range 20 {
		ok, err := p.changes.move(t.Context(), moved, now.Add(time.Duration(31+i)*24*time.Hour))
		require.NoError(t, err)
		require.True(t, ok)
	}
	for i := range 20 {
		a := add(fmt.Sprint("canceled", i), fmt.Sprint("key", i))
		if i%2 == 0 {
			_, err := p.changes.move(t.Context(), a, now.Add(40*24*time.Hour))
			require.NoError(t, err)
		}
		ok, err := p.changes.cancel(t.Context(), a)
		require.NoError(t, err)
		require.True(t, ok)
	}
	replaced := driver.Record{Job: driver.Job{Kind: "k", Key: "k", OnKey: driver.KeyReplace, Payload: make([]byte, 100<<10), MaxAttempts: 1}, Born: now}
	for i := range 20 {
		replaced.ID, replaced.Due = fmt.Sprint("replaced", i), now.Add(time.Duration(30+i%2*20)*24*time.Hour)
		replaced.At = replaced.Due
		require.NoError(t, p.insertOne(t.Context(), replaced))
	}
	require.Less(t, size()-empty, uint64(370<<10), "three jobs are left, of 100 KiB each")
	for _, a := range []address{moved, stays} {
		at, forward, _, err := p.current(t.Context(), a)
		require.NoError(t, err)
		_, _, err = p.find(t.Context(), a, at, forward)
		require.NoError(t, err)
	}
	require.Equal(t, 2, has("h"), "buckets in which a job is")
}

// Moves leave the last fifth of a store to the ends of jobs, as adds do.
func TestMovesLeaveTheReserve(t *testing.T) {
	const most = 10 << 20
	p := newPart(t, WithMaxBytes(most))
	now := time.Now().Truncate(time.Microsecond)
	r := driver.Record{ID: "x", Job: driver.Job{Kind: "k", Payload: make([]byte, 100<<10), MaxAttempts: 1}, Due: now.Add(time.Minute), Born: now}
	require.NoError(t, p.insertOne(t.Context(), r))
	a := address{bucket: p.nearOf(r.Due), born: now.UnixMicro(), id: r.ID}
	var err error
	for n := 0; err == nil; n++ {
		require.Less(t, n, most/len(r.Payload), "moves fill the store")
		_, err = p.changes.move(t.Context(), a, r.Due.Add(time.Duration(n)*time.Millisecond))
	}
	require.ErrorIs(t, err, driver.ErrFull)
	for range 2 {
		require.NoError(t, p.Write(t.Context(), stream.Write{Subject: p.subject("k.end"), Data: make([]byte, most/20)}))
	}
}

// More workers, and more requests to cancel a worker's claims, than one answer of a server has are all read.
func TestMoreThanAnAnswerHas(t *testing.T) {
	t.Parallel()
	const many = 1100
	p := newPart(t)
	var groups []stream.Group
	for i := range many {
		groups = append(groups, stream.Group{{Subject: p.workerSubject(fmt.Sprint("w", i)), Data: []byte(`{"lease":1}`)}})
		groups = append(groups, stream.Group{{Subject: p.cancelSubject("w", fmt.Sprint("job", i)), Data: []byte("1 0 1 ref")}})
	}
	for _, res := range p.Commit(t.Context(), groups) {
		require.NoError(t, res.Err)
	}
	lives, _, err := p.queues.lives(t.Context())
	require.NoError(t, err)
	require.Len(t, lives, many)
	refs, err := p.changes.canceledOf(t.Context(), "w")
	require.NoError(t, err)
	require.Empty(t, refs, "no job is claimed")
	left, err := p.LastsIn(t.Context(), p.cancelSubject("w", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// The requests to cancel claims of one worker are read together, however many.
func TestManyCancelsAreReadTogether(t *testing.T) {
	t.Parallel()
	const many = 700
	p := newPart(t)
	var groups []stream.Group
	for i := range many {
		s := status{fate: claimed, worker: "w", token: "t"}
		groups = append(groups, stream.Group{{Subject: p.statusSubject(location{id: fmt.Sprint("job", i), bucket: 1}), Data: s.encode()}})
	}
	var requests []stream.Group
	for i, res := range p.Commit(t.Context(), groups) {
		require.NoError(t, res.Err)
		requests = append(requests, stream.Group{{Subject: p.cancelSubject("w", fmt.Sprint("job", i)), Data: fmt.Appendf(nil, "1 0 %d ref%d", res.First, i)}})
	}
	for _, res := range p.Commit(t.Context(), requests) {
		require.NoError(t, res.Err)
	}
	before := p.Conn.NC.Stats().OutMsgs
	refs, err := p.changes.canceledOf(t.Context(), "w")
	require.NoError(t, err)
	require.Len(t, refs, many)
	require.Less(t, p.Conn.NC.Stats().OutMsgs-before, uint64(50))
}
