package jetstream

import (
	"bytes"
	"crypto/rand"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// garbler makes the answer to the next batch unreadable, so that nobody knows whether it was written.
type garbler struct {
	*server.Server
	instead atomic.Pointer[func() bool] // called once, before the batch is passed on; false: the server refuses it
	answer  atomic.Bool
}

func (g *garbler) InProcessConn() (net.Conn, error) {
	conn, err := g.Server.InProcessConn()
	return &garbled{conn, g}, err
}

type garbled struct {
	net.Conn
	of *garbler
}

func (c *garbled) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("Nats-Batch-Commit")) {
		if instead := c.of.instead.Swap(nil); instead != nil {
			if !(*instead)() {
				b = bytes.Replace(b, []byte("Nats-Batch-Commit: 1"), []byte("Nats-Batch-Commit: 9"), 1)
			}
			c.of.answer.Store(true)
		}
	}
	return c.Conn.Write(b)
}

func (c *garbled) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for _, begin := range []string{`{"stream":`, `{"error":`} {
		if i := bytes.Index(b[:n], []byte(begin)); i >= 0 && c.of.answer.CompareAndSwap(true, false) {
			b[i] = '-'
		}
	}
	return n, err
}

// A signal, or a move, whose answer was lost is done once, and says so. If another change came
// first, it says that it was not done.
func TestSignalWithoutAnAnswer(t *testing.T) {
	srv := newServer(t)
	c := &garbler{Server: srv}
	p, other := connectPart(t, c), connectPart(t, srv)
	k := &keyedJobs{t, other, other.now().Truncate(time.Microsecond)}
	for name, test := range map[string]struct {
		instead func(ref driver.Ref) bool
		want    bool
	}{
		"it came":             {func(driver.Ref) bool { return true }, true},
		"it did not come":     {func(driver.Ref) bool { return false }, true},
		"a cancel came first": {func(ref driver.Ref) bool { k.cancel(ref); return true }, false},
	} {
		for _, signal := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				k.t = t
				r := k.record(rand.Text(), driver.KeyRefuse, time.Hour)
				r.Signals = true
				ref := k.mustAdd(r)
				a, err := parseRef(ref, p.salt, p.of)
				require.NoError(t, err)
				instead := func() bool { return test.instead(ref) }
				c.instead.Store(&instead)
				var ok bool
				if to := k.now.Add(time.Minute); signal {
					ok, err = p.signal(t.Context(), "k", []byte("s"), to)
				} else {
					ok, err = p.move(t.Context(), a, to)
				}
				require.Nil(t, c.instead.Load())
				require.False(t, c.answer.Load())
				require.NoError(t, err)
				require.Equal(t, test.want, ok)
				if !test.want {
					require.Empty(t, k.waits())
					return
				}
				require.Equal(t, ref, k.waits())
				h, err := other.keyHolder(t.Context(), "k")
				require.NoError(t, err)
				require.Equal(t, 1, h.at.version)
				k.cancel(ref)
			})
		}
	}
}
