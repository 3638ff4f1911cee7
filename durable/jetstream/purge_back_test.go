package jetstream_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/testservers/busy"
)

// purgeCut ends the connection when a far bucket is to be purged, before the server has the request.
type purgeCut struct {
	*backStore
	once sync.Once
	cut  func()
}

type purgeConn struct {
	net.Conn
	s *purgeCut
}

func (s *purgeCut) InProcessConn() (net.Conn, error) {
	c, err := s.backStore.InProcessConn()
	return purgeConn{c, s}, err
}

func (c purgeConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("STREAM.PURGE.")) && bytes.Contains(b, []byte(".h.")) {
		is := false
		c.s.once.Do(func() { is = true })
		if is {
			c.s.backStore.cut.Store(true)
			_ = c.Conn.Close()
			go c.s.cut()
			return 0, net.ErrClosed
		}
	}
	return c.Conn.Write(b)
}

// A copy of before a cascade is put in place while the request is under way that removes what was moved. The request must
// not come to the copy, which has the jobs in the far bucket only.
func TestPurgeUnderWayWhenPutBack(t *testing.T) {
	t.Parallel()
	s := &purgeCut{backStore: newBackStore(t, jetstream.WithBuckets(jetstream.Buckets{
		Near: 250 * time.Millisecond, Far: 10 * time.Second, Lead: 5 * time.Second, Settle: time.Second,
	}))}
	back := make(chan struct{})
	s.cut = func() { s.putBack(t); s.backStore.cut.Store(false); close(back) }
	adder := newAdder(t, s.backStore)
	// In the bucket after the next one, or later where the machine is busy: the jobs are stored before it is moved.
	due := time.Now().Add(busy.Longer(20 * time.Second)).Truncate(10 * time.Second).Add(8 * time.Second)
	refs := adder.add(t, 3, durable.Job{Kind: "k", At: due})
	s.keep(t)
	w := work(t, s.openBy(t, s), newGate())
	w.gate.pass()
	select {
	case <-back:
	case <-time.After(patience):
		t.Fatal("no far bucket was purged")
	}
	require.Eventually(t, func() bool {
		for _, ref := range refs {
			if w.hasEnded(ref) == 0 {
				return false
			}
		}
		return true
	}, patience, 100*time.Millisecond, "jobs are lost")
}

// newAdder is a queue that runs nothing.
func newAdder(t *testing.T, s *backStore) *backWorker {
	q, err := durable.Open(within(t), s.Open(t))
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	return &backWorker{Queue: q}
}
