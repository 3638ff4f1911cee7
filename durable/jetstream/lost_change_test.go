package jetstream

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// garbler can change each batch that is written, and make an answer to one unreadable, so that nobody
// knows whether it was written.
type garbler struct {
	*server.Server
	before atomic.Pointer[func(batch []byte) []byte] // called of the next batch, which it may change
	lose   atomic.Pointer[func()]                    // called when the next answer to a batch comes, which is lost
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
	n := len(b)
	if bytes.Contains(b, []byte("Nats-Batch-Commit")) {
		if before := c.of.before.Swap(nil); before != nil {
			b = (*before)(b)
		}
	}
	_, err := c.Conn.Write(b)
	return n, err
}

func (c *garbled) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for _, begin := range []string{`{"stream":`, `{"error":`} {
		i := bytes.Index(b[:n], []byte(begin))
		if i < 0 {
			continue
		}
		if lose := c.of.lose.Swap(nil); lose != nil {
			b[i] = '-'
			(*lose)()
		}
	}
	return n, err
}

// refused changes a batch so that the server does not take it.
func refused(batch []byte) []byte {
	return bytes.Replace(batch, []byte("Nats-Batch-Commit: 1"), []byte("Nats-Batch-Commit: 9"), 1)
}

// A signal, or a move, whose answer was lost is done once, and says so. If another change came
// first, it says that it was not done.
func TestSignalWithoutAnAnswer(t *testing.T) {
	srv := newServer(t)
	c := &garbler{Server: srv}
	p, other := connectPart(t, c), connectPart(t, srv)
	k := &keyedJobs{t, other, other.Now().Truncate(time.Microsecond)}
	for name, test := range map[string]struct {
		before func(batch []byte, ref driver.Ref) []byte
		want   bool
	}{
		"it came":             {func(batch []byte, _ driver.Ref) []byte { return batch }, true},
		"it did not come":     {func(batch []byte, _ driver.Ref) []byte { return refused(batch) }, true},
		"a cancel came first": {func(batch []byte, ref driver.Ref) []byte { k.cancel(ref); return batch }, false},
	} {
		for _, signal := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				k.t = t
				r := k.record(rand.Text(), driver.KeyRefuse, time.Hour)
				r.Signals = true
				ref := k.mustAdd(r)
				a, err := parseRef(ref, p.salt, p.of)
				require.NoError(t, err)
				before := func(batch []byte) []byte { return test.before(batch, ref) }
				c.before.Store(&before)
				nothing := func() {}
				c.lose.Store(&nothing)
				var ok bool
				if to := k.now.Add(time.Minute); signal {
					ok, err = p.changes.signal(t.Context(), "k", []byte("s"), to)
				} else {
					ok, err = p.changes.move(t.Context(), a, to)
				}
				require.Nil(t, c.before.Load())
				require.Nil(t, c.lose.Load())
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

// claim makes an exact claim of the job that waits under the key, by a worker of another part.
func (k *keyedJobs) claim(p *part) (*worker, *driver.Delivery) {
	k.t.Helper()
	work, err := connectPartTo(k.t, p).Work(k.t.Context(), driver.WorkConfig{Name: rand.Text(), Kinds: driver.NewKindSet([]string{"k"}), Lease: time.Hour, Retention: time.Hour})
	require.NoError(k.t, err)
	w := work.(*worker)
	p = w.e.parts[0]
	h, err := p.keyHolder(k.t.Context(), "k")
	require.NoError(k.t, err)
	r, m, err := p.findHeld(k.t.Context(), &h)
	require.NoError(k.t, err)
	d := &driver.Delivery{Ref: h.ref, Record: r, Exact: true}
	d.Claim = &handle{p: p.buckets, at: h.at, since: time.Now(), seq: m.Seq, record: &d.Record}
	require.Equal(k.t, driver.Granted, w.Claim(k.t.Context(), []*driver.Delivery{d})[0].Status)
	return w, d
}

// A claim is given back though others take and leave its key all the time.
func TestReleaseWhileTheKeyChanges(t *testing.T) {
	srv := newServer(t)
	g := &garbler{Server: srv}
	p, other := connectPart(t, g), connectPart(t, srv)
	k := &keyedJobs{t, other, other.Now().Truncate(time.Microsecond)}
	r := k.record("job", driver.KeyRefuse, 0)
	r.FreeWhenBegun = true
	ref := k.mustAdd(r)
	w, d := k.claim(p)
	var change func(batch []byte) []byte
	left := 3
	change = func(batch []byte) []byte {
		k.cancel(k.mustAdd(k.record(rand.Text(), driver.KeyRefuse, time.Hour)))
		if left--; left > 0 {
			g.before.Store(&change)
		}
		return batch
	}
	g.before.Store(&change)
	require.NoError(t, w.Release(t.Context(), []*driver.Delivery{d}, 0))
	require.Zero(t, left)
	h, err := other.keyHolder(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, ref, h.ref)
	require.Equal(t, freed, h.s.fate)
	k.cancel(ref)
}

// A job that begins before the answer to its Add is lost keeps its key free, and one that is replaced
// then stays so.
func TestAddWithoutAnAnswer(t *testing.T) {
	srv := newServer(t)
	g := &garbler{Server: srv}
	p, other := connectPart(t, g), connectPart(t, srv)
	k := &keyedJobs{t, other, other.Now().Truncate(time.Microsecond)}
	for name, onKey := range map[string]driver.OnKey{"refuse": driver.KeyRefuse, "replace": driver.KeyReplace, "later": driver.KeyLater, "keep": driver.KeyKeep} {
		for _, begins := range []bool{true, false} {
			t.Run(fmt.Sprint(name, begins), func(t *testing.T) {
				k.t = t
				r := k.record(rand.Text(), onKey, 0)
				r.FreeWhenBegun = true
				var newer driver.Ref
				meanwhile := func() {
					if begins {
						k.claim(other)
						return
					}
					newer = k.mustAdd(k.record(rand.Text(), driver.KeyReplace, time.Hour))
				}
				g.lose.Store(&meanwhile)
				refs, errs := p.inserts.insert(t.Context(), []driver.Record{r})
				require.NoError(t, errs[0])
				require.Equal(t, p.refOf(&r), refs[0])
				h, err := other.keyHolder(t.Context(), "k")
				require.NoError(t, err)
				require.Equal(t, newer, h.ref)
				if !begins {
					k.cancel(newer)
				}
			})
		}
	}
}
