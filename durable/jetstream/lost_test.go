package jetstream_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// trap is a wall that locks itself when a write to a stream goes over it: the server has
// what was written, and the client never hears of it.
type trap struct {
	wall
	set, sprung atomic.Bool
}

func (l *trap) InProcessConn() (net.Conn, error) {
	c, err := l.wall.InProcessConn()
	return trapConn{c.(*wallConn), l}, err
}

type trapConn struct {
	*wallConn
	trap *trap
}

func (c trapConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("PUB TW_")) && c.trap.set.CompareAndSwap(true, false) {
		c.trap.Lock()
		c.trap.sprung.Store(true)
	}
	return c.wallConn.Conn.Write(b)
}

// If the connection is closed for good while the answer to a write is awaited, nobody knows
// whether that was done, and the error says so. Here it was.
func TestClosedBeforeTheAnswer(t *testing.T) {
	far := time.Now().Add(time.Hour)
	for name, test := range map[string]struct {
		do  func(context.Context, *durable.Queue, durable.Ref) error
		did func(t *testing.T, q *durable.Queue, ref durable.Ref)
	}{
		"Add": {func(ctx context.Context, q *durable.Queue, _ durable.Ref) error {
			_, err := q.Add(ctx, durable.Job{Kind: "k", At: far})
			return err
		}, func(t *testing.T, q *durable.Queue, _ durable.Ref) { require.Equal(t, 2, kept(t, q)) }},
		"Add with a key": {func(ctx context.Context, q *durable.Queue, _ durable.Ref) error {
			_, err := q.Add(ctx, durable.Job{Kind: "k", At: far, Key: "key"})
			return err
		}, func(t *testing.T, q *durable.Queue, _ durable.Ref) { require.Equal(t, 2, kept(t, q)) }},
		"Cancel": {func(ctx context.Context, q *durable.Queue, ref durable.Ref) error {
			_, err := q.Cancel(ctx, ref)
			return err
		}, func(t *testing.T, q *durable.Queue, ref durable.Ref) {
			_, err := q.Get(t.Context(), ref)
			require.ErrorIs(t, err, durable.ErrNotFound)
		}},
		"Reschedule": {func(ctx context.Context, q *durable.Queue, ref durable.Ref) error {
			_, err := q.Reschedule(ctx, ref, far.Add(time.Hour))
			return err
		}, func(t *testing.T, q *durable.Queue, ref durable.Ref) {
			info, err := q.Get(t.Context(), ref)
			require.NoError(t, err)
			require.Greater(t, time.Until(info.Due), 90*time.Minute)
		}},
		"Schedule": {func(ctx context.Context, q *durable.Queue, _ durable.Ref) error {
			return q.SetSchedule(ctx, "s", "@every 1h", durable.Job{Kind: "k"})
		}, func(t *testing.T, q *durable.Queue, _ durable.Ref) { require.Equal(t, 2, kept(t, q)) }},
		"Pause": {func(ctx context.Context, q *durable.Queue, _ durable.Ref) error {
			return q.Pause(ctx, durable.Pausable{Kind: "k"})
		}, func(t *testing.T, q *durable.Queue, _ durable.Ref) {
			paused, err := q.Paused(t.Context())
			require.NoError(t, err)
			require.Len(t, paused, 1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			sees := open(t, s.Open(t))
			l := &trap{wall: wall{srv: s.srv}}
			nc, err := nats.Connect("", nats.InProcessServer(l), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
			require.NoError(t, err)
			e, err := jetstream.Connect(t.Context(), nc, s.opts...)
			require.NoError(t, err)
			q := open(t, e)
			ref, err := q.Add(t.Context(), durable.Job{Kind: "k", At: far})
			require.NoError(t, err)
			done := make(chan error, 1)
			l.set.Store(true)
			go func() { done <- test.do(t.Context(), q, ref) }()
			require.Eventually(t, l.sprung.Load, patience, time.Millisecond)
			time.Sleep(100 * time.Millisecond)
			require.Empty(t, done)
			nc.Close()
			l.Unlock()
			require.ErrorIs(t, <-done, durable.ErrUncertain)
			test.did(t, sees, ref)
		})
	}
}

// cutter connects a client with a server, and cuts the connection once, when a write to a stream has
// gone over it, or the first answers of a page have come.
type cutter struct {
	srv                natsServer
	inWrite, inAnswers atomic.Bool
}

func (c *cutter) InProcessConn() (net.Conn, error) {
	conn, err := c.srv.InProcessConn()
	return cutConn{conn, c}, err
}

type cutConn struct {
	net.Conn
	cutter *cutter
}

func (c cutConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("PUB TW_")) && c.cutter.inWrite.CompareAndSwap(true, false) {
		defer c.Conn.Close()
	}
	return c.Conn.Write(b)
}

func (c cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("Nats-Num-Pending: ")) && c.cutter.inAnswers.CompareAndSwap(true, false) {
		defer c.Conn.Close()
	}
	return n, err
}

// newCutter opens a queue whose connection can be cut.
func newCutter(t *testing.T) (*cutter, *durable.Queue) {
	s := newStore(t)
	c := &cutter{srv: s.srv}
	nc, err := nats.Connect("", nats.InProcessServer(c), nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond), nats.Timeout(time.Minute))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	e, err := jetstream.Connect(t.Context(), nc, s.opts...)
	require.NoError(t, err)
	return c, open(t, e)
}

// A write whose answer was lost with the connection is asked for when that is made anew, and not
// after ten seconds: all that share a commit with it would wait so long.
func TestAnswerLostWithTheConnection(t *testing.T) {
	for name, key := range map[string]string{"Add": "", "Add with a key": "key"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for try := 1; ; try++ { // a busy machine may be late now and then
				c, q := newCutter(t)
				c.inWrite.Store(true)
				began := time.Now()
				ref, err := q.Add(t.Context(), durable.Job{Kind: "k", At: began.Add(time.Hour), Key: key})
				took := time.Since(began)
				require.NoError(t, err)
				require.False(t, c.inWrite.Load())
				for info, err := range q.All(t.Context(), durable.Filter{}) { // maybe of two copies
					require.NoError(t, err)
					require.Equal(t, ref, info.Ref)
				}
				if took < 9*time.Second {
					return
				}
				require.Less(t, try, 4, "it takes %v", took)
			}
		})
	}
}

// A page of which a part has come is asked for again.
func TestPageLostWithTheConnection(t *testing.T) {
	t.Parallel()
	c, q := newCutter(t)
	jobs := make([]durable.Job, 600)
	for i := range jobs {
		jobs[i] = durable.Job{Kind: "k", At: time.Now().Add(time.Hour), Payload: make([]byte, 1000)}
	}
	_, err := q.AddMany(t.Context(), jobs...)
	require.NoError(t, err)
	c.inAnswers.Store(true)
	require.Equal(t, len(jobs), kept(t, q))
	require.False(t, c.inAnswers.Load())
}

func open(t *testing.T, e driver.Engine) *durable.Queue {
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	return q
}

func kept(t *testing.T, q *durable.Queue) (n int) {
	for _, err := range q.All(t.Context(), durable.Filter{}) {
		require.NoError(t, err)
		n++
	}
	return n
}

// An end whose answer was lost is one, also if nobody could ask what became of it before the
// next call: it is not that of another worker who has taken over.
func TestEndWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	l := &trap{wall: wall{srv: s.srv}}
	nc, err := nats.Connect("", nats.InProcessServer(l), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
	require.NoError(t, err)
	defer nc.Close()
	e, err := jetstream.Connect(t.Context(), nc, s.opts...)
	require.NoError(t, err)
	defer e.Close()
	w, err := e.Work(t.Context(), driver.WorkConfig{Name: "w", Kinds: driver.NewKindSet([]string{"k"}), Lease: time.Minute, Ahead: time.Second, Retention: time.Hour})
	require.NoError(t, err)
	for _, out := range []driver.Completion{{End: driver.Done}, {End: driver.Retry, At: time.Now().Add(time.Hour)}, {End: driver.DeadLetter}} {
		now := time.Now().Truncate(time.Microsecond)
		_, errs := e.Insert(t.Context(), []driver.Record{{ID: fmt.Sprint("x", out.End), Job: driver.Job{Kind: "k", At: now, MaxAttempts: 3}, Due: now, Born: now}})
		require.NoError(t, errs[0])
		feeding, stop := context.WithCancel(t.Context())
		require.NoError(t, w.Fetch(feeding, func(held []*driver.Delivery) { out.Delivery = held[0]; stop() }))
		stop()
		require.Eventually(t, func() bool { return w.Claim(t.Context(), []*driver.Delivery{out.Delivery})[0].Status == driver.Granted }, patience, time.Millisecond)
		finishing, cut := context.WithCancel(t.Context())
		done := make(chan error, 1)
		l.sprung.Store(false)
		l.set.Store(true)
		go func() { done <- w.Finish(finishing, []driver.Completion{out})[0] }()
		require.Eventually(t, l.sprung.Load, patience, time.Millisecond)
		cut()
		require.ErrorIs(t, <-done, durable.ErrUncertain)
		l.Unlock()
		require.NoError(t, w.Finish(t.Context(), []driver.Completion{out})[0])
	}
}

// A lease that is over in one partition is renewed when the heartbeats of all are written, and
// said to have been lost then: no job may begin in one without a heartbeat.
func TestLostLeaseInOnePartition(t *testing.T) {
	t.Parallel()
	s := newStore(t, jetstream.WithPartitions(2))
	const lease = 2 * time.Second
	w, err := s.Open(t).Work(t.Context(), driver.WorkConfig{Name: "w", Kinds: driver.NewKindSet([]string{"k"}), Lease: lease, Ahead: time.Second, Retention: time.Hour})
	require.NoError(t, err)
	time.Sleep(lease + 10*time.Millisecond)
	js, err := s.connect(t).JetStream()
	require.NoError(t, err)
	info, err := js.StreamInfo("TW_default_1")
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream("TW_default_1"))
	short, cancel := context.WithTimeout(t.Context(), lease/4)
	defer cancel()
	err = w.Heartbeat(short)
	require.Error(t, err)
	require.NotErrorIs(t, err, durable.ErrLeaseLost)
	info.Config.FirstSeq = 1000 // as if it had been there all the time
	_, err = js.AddStream(&info.Config)
	require.NoError(t, err)
	require.ErrorIs(t, w.Heartbeat(t.Context()), durable.ErrLeaseLost)
	await(t, func() string { // or it is over once more
		if err := w.Heartbeat(within(t)); err != nil {
			return err.Error()
		}
		return ""
	})
}
