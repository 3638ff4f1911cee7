package jetstream

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// Who takes back what it has written, because the bucket is closed, leaves alone what
// another has written after that: it says that the job has ended, and a copy of the job
// may be there still.
func TestTakesBackItsOwnStatusOnly(t *testing.T) {
	p := newPart(t)
	now := time.Now().Truncate(time.Microsecond)
	r := driver.Record{ID: "x", Job: driver.Job{Kind: "k", At: now, MaxAttempts: 1}, Due: now, Born: now}
	at := location{id: r.ID, bucket: p.nearOf(now)}
	require.NoError(t, p.Write(t.Context(), p.mark(p.nearMark(at.bucket))))
	put := func(s status) uint64 {
		res := p.Commit(t.Context(), []stream.Group{{{Subject: p.statusSubject(at), Data: s.encode()}}})[0]
		require.NoError(t, res.Err)
		return res.First
	}
	stays := func(want fate) {
		s, err := p.status(t.Context(), at)
		require.NoError(t, err)
		require.Equal(t, want, s.fate)
	}

	mine := status{fate: claimed, token: "mine", worker: "a", attempt: 1}
	mine.seq = put(mine)
	put(status{fate: done, token: "another", worker: "b", attempt: 2})
	gone := put(status{fate: done, token: "another", worker: "b", attempt: 2}) + 1
	h := &driver.Delivery{Record: r, Claim: &handle{p: p.buckets, at: at, seq: gone, status: mine, record: &r}}
	w := newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{})
	require.Equal(t, driver.Gone, w.claimer.confirm(t.Context(), p, h, errBucketClosed).Status)
	stays(done)

	late := put(status{fate: canceled, token: "mine"})
	put(status{fate: done, token: "another"})
	ok, err := p.changes.confirmCancel(t.Context(), address{bucket: at.bucket, id: at.id}, at, 0, late)
	require.NoError(t, err)
	require.False(t, ok)
	stays(done)

	ok, err = p.changes.confirmCancel(t.Context(), address{bucket: at.bucket, id: at.id}, at, 0, put(status{fate: canceled, token: "mine"}))
	require.NoError(t, err)
	require.False(t, ok)
	stays(none)
}

// A Cancel that has written before its bucket was closed, and looks after that, does not
// say that it has not canceled the job.
func TestCancelBeforeTheMark(t *testing.T) {
	p := newPart(t)
	now := time.Now().Truncate(time.Microsecond)
	r := driver.Record{ID: "x", Job: driver.Job{Kind: "k", At: now, MaxAttempts: 1}, Due: now, Born: now}
	a := address{bucket: p.nearOf(now), born: now.UnixMicro(), id: r.ID}
	at := location{id: a.id, bucket: a.bucket}
	require.NoError(t, p.insertOne(t.Context(), r))
	require.NoError(t, p.Write(t.Context(), stream.Write{Subject: p.statusSubject(at), Data: status{fate: canceled, token: "t"}.encode()}))
	require.NoError(t, p.Write(t.Context(), p.mark(p.nearMark(a.bucket))))
	require.NoError(t, p.PurgeAll(t.Context(), p.queues.nearSubject(a.bucket, "k")))

	_, err := p.changes.cancelAs(t.Context(), a, "t")
	require.ErrorIs(t, err, driver.ErrUncertain)
}

// Statuses stay as long as there is something in the far bucket that may have ended.
func TestStatusesOutliveTheFarBucket(t *testing.T) {
	p := newPart(t)
	f := newFetcher(p, newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{}), nil)
	now := time.Now().Truncate(time.Microsecond)
	r := driver.Record{ID: "x", Job: driver.Job{Kind: "k", At: now, MaxAttempts: 1}, Due: now, Born: now}
	at := location{id: r.ID, bucket: p.nearOf(now)}
	left := stream.Write{Subject: p.farSubject(p.farOf(at.bucket)), Data: encode(&r, nil)}
	end := stream.Write{Subject: p.statusSubject(at), Data: status{fate: canceled, token: "t"}.encode()}
	require.NoError(t, p.Write(t.Context(), left, end, p.mark(p.nearMark(at.bucket)), stream.Write{Subject: p.closingSubject(at.bucket)}))

	require.NoError(t, f.closer.resume(t.Context()))
	s, err := p.status(t.Context(), at)
	require.NoError(t, err)
	require.Equal(t, canceled, s.fate)

	require.NoError(t, p.PurgeAll(t.Context(), left.Subject))
	require.NoError(t, f.closer.resume(t.Context()))
	s, err = p.status(t.Context(), at)
	require.NoError(t, err)
	require.Equal(t, none, s.fate)
}

// A cascade that was frozen with a job in its hands, until that had ended and all of it
// was forgotten, does not store it anew.
func TestMoveLateAsksForItsMessage(t *testing.T) {
	for _, there := range []bool{true, false} {
		p := newPart(t)
		f := newFetcher(p, newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{Lease: time.Minute}), nil)
		now := time.Now().Truncate(time.Microsecond)
		r := driver.Record{ID: "x", Job: driver.Job{Kind: "k", At: now, MaxAttempts: 1}, Due: now, Born: now}
		at := location{id: r.ID, bucket: p.nearOf(now)}
		res := p.Commit(t.Context(), []stream.Group{{{Subject: p.farSubject(p.farOf(at.bucket)), Data: encode(&r, nil)}}})[0]
		require.NoError(t, res.Err)
		ok, err := p.markClosed(t.Context(), p.nearMark(at.bucket), func(fl *watermark) { fl.near = at.bucket })
		require.NoError(t, err)
		require.True(t, ok)
		if !there {
			require.NoError(t, p.PurgeAll(t.Context(), p.farSubject(p.farOf(at.bucket))))
		}

		require.NoError(t, f.mover.moveLate(t.Context(), &handle{p: p.buckets, at: at, seq: res.First}, &r))
		info, err := p.Info(t.Context(), p.queues.nearSubject(at.bucket+1, "k"))
		require.NoError(t, err)
		require.Equal(t, there, len(info.Subjects) > 0, "stored anew")
		s, err := p.status(t.Context(), at)
		require.NoError(t, err)
		require.Equal(t, map[bool]fate{true: moved, false: none}[there], s.fate)
	}
}

// A job whose bucket a clock had passed over was stored elsewhere, and has ended there. Then
// nothing is left of it. That another job is in the bucket of its time does not say that it
// waits. One that is there itself does.
func TestCancelBelowTheWatermark(t *testing.T) {
	p := newPart(t)
	now := p.Now()
	b := p.nearOf(now)
	due := p.start(b)
	closeBucket(t, p, b+2)
	late := connectPartTo(t, p).(*engine).parts[0]
	there, ended := recordAt("there", due, now), recordAt("ended", due, now)
	require.NoError(t, p.Write(t.Context(), stream.Write{Subject: p.queues.nearSubject(b, "k"), Data: encode(&there, nil)}))
	addressOf := func(r driver.Record) address { return address{bucket: b, born: r.Born.UnixMicro(), id: r.ID} }
	cancel := func(r driver.Record) bool {
		ok, err := p.changes.cancel(t.Context(), addressOf(r))
		require.NoError(t, err)
		return ok
	}
	late.learn(bottom) // as it was when it connected, long ago
	of, errs := late.progress(t.Context(), []address{addressOf(there), addressOf(ended)})
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, []driver.State{driver.Waiting, driver.Dead}, []driver.State{of[0].State, of[1].State})
	late.learn(bottom)
	ok, err := late.changes.cancel(t.Context(), addressOf(ended))
	require.NoError(t, err)
	require.False(t, ok)
	require.False(t, cancel(ended))
	s, err := p.status(t.Context(), location{id: ended.ID, bucket: b})
	require.NoError(t, err)
	require.Equal(t, none, s.fate, "nothing is written of it")
	require.True(t, cancel(there))
	require.False(t, cancel(there))
}

// A Cancel whose answer is lost does not say that it was none, if it finds the bucket
// closed when it asks again.
func TestCancelWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	p := connectPart(t, srv)
	l := &losing{srv: srv, write: "PUB " + p.subject("c.")}
	caller := connectPart(t, l)
	now := p.Now()
	r := recordAt("x", now, now)
	a := address{bucket: p.nearOf(now), born: r.Born.UnixMicro(), id: r.ID}
	require.NoError(t, p.insertOne(t.Context(), r))
	result := make(chan error, 1)
	go func() {
		_, err := caller.changes.cancel(t.Context(), a)
		result <- err
	}()
	at := location{id: r.ID, bucket: a.bucket}
	require.Eventually(t, func() bool {
		s, err := p.status(t.Context(), at)
		return err == nil && s.fate == canceled
	}, time.Minute, time.Millisecond)
	closeBucket(t, p, a.bucket)
	require.NoError(t, p.PurgeAll(t.Context(), p.queues.nearSubject(a.bucket, "k")))
	require.NoError(t, p.PurgeAll(t.Context(), p.statusSubject(at)))
	require.ErrorIs(t, <-result, driver.ErrUncertain)
	require.True(t, l.lost.Load())
}

// A Signal that was stored, though the answer calls the server busy, is repeated, and refused then. It is true all the
// same.
func TestSignalThatIsRefusedAfterItWasStored(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	p := connectPart(t, srv)
	l := &losing{srv: srv, write: "PUB " + p.subject("c."), instead: `{"error":{"code":400,"err_code":10164}}`}
	caller := connectPart(t, l)
	now := p.Now()
	r := recordAt("x", now.Add(time.Hour), now)
	r.Key, r.Signals = "key", true
	require.NoError(t, p.insertOne(t.Context(), r))
	ok, err := caller.changes.signal(t.Context(), "key", []byte("s"), now)
	require.NoError(t, err)
	require.True(t, ok)
	require.True(t, l.lost.Load())
	ok, err = caller.changes.signal(t.Context(), "key", []byte("t"), now)
	require.NoError(t, err)
	require.False(t, ok, "it has one")
}

// losing connects a client and a server, and loses the answer to the first write, or puts another one instead.
type losing struct {
	srv           *server.Server
	write         string
	instead       string
	written, lost atomic.Bool
}

func (l *losing) InProcessConn() (net.Conn, error) {
	c, err := l.srv.InProcessConn()
	return losingConn{c, l}, err
}

type losingConn struct {
	net.Conn
	of *losing
}

func (c losingConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.of.write)) {
		c.of.written.Store(true)
	}
	return c.Conn.Write(b)
}

func (c losingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.of.written.Load() && bytes.Contains(b[:n], []byte(`{"stream":`)) && c.of.lost.CompareAndSwap(false, true) {
		if c.of.instead == "" {
			return c.Conn.Read(b)
		}
		at := bytes.Index(b[:n], []byte(`{"stream":`))
		to := at + bytes.IndexByte(b[at:n], '}') + 1
		copy(b[at:to], c.of.instead+strings.Repeat(" ", to-at-len(c.of.instead)))
	}
	return n, err
}

// While a backup is made no status is removed: it may have read the job before that was removed.
func TestStatusesStayForABackup(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	f := newFetcher(p, newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{}), nil)
	at := location{id: "x", bucket: p.nearOf(p.Now())}
	require.NoError(t, p.Write(t.Context(), stream.Write{Subject: p.statusSubject(at), Data: status{fate: canceled, token: "t"}.encode()}))
	_, err := (&copier{p.buckets}).holdStatuses(t.Context())
	require.NoError(t, err)
	is, err := p.isBackedUp(t.Context())
	require.NoError(t, err)
	require.True(t, is)
	gone, err := f.closer.forget(t.Context(), at.bucket)
	require.NoError(t, err)
	require.False(t, gone)
	s, err := p.status(t.Context(), at)
	require.NoError(t, err)
	require.Equal(t, canceled, s.fate)

	require.NoError(t, p.PurgeAll(t.Context(), p.backupSubject())) // its time is over
	gone, err = f.closer.forget(t.Context(), at.bucket)
	require.NoError(t, err)
	require.True(t, gone)
	s, err = p.status(t.Context(), at)
	require.NoError(t, err)
	require.Equal(t, none, s.fate)
}

// Groups that write the same subject do not keep one another, or all that is written with them, from being
// written: the server takes no batch that replaces a subject twice.
func TestGroupsOfOneSubject(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	var groups []stream.Group
	for _, id := range []string{"a", "b", "c"} {
		end := stream.Write{Subject: p.statusSubject(location{id: id}), Data: status{fate: done, token: id}.encode()}
		groups = append(groups, stream.Group{end, grave(p.permitSubject("1.-." + map[string]string{"a": "0", "b": "0", "c": "1"}[id]))})
	}
	for _, res := range p.Commit(t.Context(), groups) {
		require.NoError(t, res.Err)
	}
}

// A job that was handed out before the stream went back is not acknowledged after that: its sequence is
// another's.
func TestAcknowledgesNothingOfAnotherStream(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	sub, err := p.Conn.NC.SubscribeSync("acks.>")
	require.NoError(t, err)
	before := &handle{p: p.buckets, acks: "acks.before", backs: p.Backs()}
	p.WentBack(p.Backs(), 0, "a test")
	before.ack()
	(&handle{p: p.buckets, acks: "acks.after", backs: p.Backs()}).ack()
	m, err := sub.NextMsgWithContext(t.Context())
	require.NoError(t, err)
	require.Equal(t, "acks.after", m.Subject)
}
