package jetstream

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/held"
)

// keyedJobs adds jobs under one key.
type keyedJobs struct {
	t   *testing.T
	p   *part
	now time.Time
}

func newKeyedJobs(t *testing.T) *keyedJobs {
	p := newPart(t)
	return &keyedJobs{t, p, p.Now().Truncate(time.Microsecond)}
}

func (k *keyedJobs) record(id string, onKey driver.OnKey, due time.Duration) driver.Record {
	r := recordAt(id, k.now.Add(due), k.now)
	r.Key, r.OnKey = "k", onKey
	return r
}

func (k *keyedJobs) add(r driver.Record) (driver.Ref, error) {
	refs, errs := k.p.inserts.insert(k.t.Context(), []driver.Record{r})
	return refs[0], errs[0]
}

func (k *keyedJobs) mustAdd(r driver.Record) driver.Ref {
	k.t.Helper()
	ref, err := k.add(r)
	require.NoError(k.t, err)
	return ref
}

// waits returns the job that waits, which has the key, or "".
func (k *keyedJobs) waits() (ref driver.Ref) {
	k.t.Helper()
	for i, err := range k.p.scan(k.t.Context(), driver.Filter{}) {
		require.NoError(k.t, err)
		require.Empty(k.t, ref, "two wait")
		ref = i.Ref
	}
	h, err := k.p.keyHolder(k.t.Context(), "k")
	require.NoError(k.t, err)
	require.Equal(k.t, ref != "", h.alive)
	if h.alive {
		require.Equal(k.t, h.ref, ref)
	}
	return ref
}

func (k *keyedJobs) cancel(ref driver.Ref) {
	k.t.Helper()
	a, err := parseRef(ref, k.p.salt, k.p.of)
	require.NoError(k.t, err)
	ok, err := k.p.changes.cancel(k.t.Context(), a)
	require.NoError(k.t, err)
	require.True(k.t, ok)
}

// An Insert that is repeated after its job was replaced or has ended stores nothing, and ends no
// other job. Where a repeat cannot know the Ref, because MaxWait has changed the due time, it says so.
func TestRepeatedReplace(t *testing.T) {
	for _, onKey := range []driver.OnKey{driver.KeyReplace, driver.KeyLater} {
		for name, maxWait := range map[string]time.Duration{"as asked": 0, "pushed back": 90 * time.Minute} {
			if onKey == driver.KeyReplace && maxWait > 0 {
				continue
			}
			t.Run(name, func(t *testing.T) {
				k := newKeyedJobs(t)
				first := k.mustAdd(k.record("first", driver.KeyRefuse, time.Minute))
				again := k.record("again", onKey, 5*time.Hour)
				again.MaxWait = maxWait
				ref := k.mustAdd(again)
				require.NotEqual(t, first, ref)
				require.Equal(t, ref, k.waits())
				require.Equal(t, ref, k.mustAdd(again), "it has the key")
				repeat := func(want driver.Ref) {
					t.Helper()
					got, err := k.add(again)
					if maxWait > 0 {
						require.ErrorIs(t, err, driver.ErrUncertain)
					} else {
						require.NoError(t, err)
						require.Equal(t, ref, got)
					}
					require.Equal(t, want, k.waits())
				}
				a, err := parseRef(ref, k.p.salt, k.p.of)
				require.NoError(t, err)
				newer := k.mustAdd(k.record("newer", driver.KeyReplace, time.Hour))
				repeat(newer)
				k.cancel(newer)
				repeat("")
				require.NoError(t, k.p.PurgeAll(t.Context(), k.p.forward("again"))) // as a minute does
				ok, err := k.p.changes.cancel(t.Context(), a)
				require.NoError(t, err)
				require.False(t, ok, "it was replaced")
			})
		}
	}
}

// A record that goes into a job which is due, and is inserted again, does not go into it once more: a
// newer one may have. It waits for the job to begin, if one has gone into that just now.
func TestRepeatedFill(t *testing.T) {
	k := newKeyedJobs(t)
	value := func(id string, onKey driver.OnKey, maxWait time.Duration) driver.Record {
		r := k.record(id, onKey, 0)
		r.Payload, r.MaxWait = []byte(id), maxWait
		return r
	}
	ref := k.mustAdd(value("first", driver.KeyRefuse, 0))
	one, two := value("one", driver.KeyReplace, 0), value("two", driver.KeyLater, time.Hour)
	require.Equal(t, ref, k.mustAdd(one))
	_, errs := k.p.inserts.insert(held.NoWait(t.Context()), []driver.Record{two})
	require.ErrorIs(t, errs[0], held.Err)
	require.Equal(t, ref, k.mustAdd(two))
	for _, r := range []driver.Record{one, two} {
		require.Equal(t, ref, k.mustAdd(r))
		require.Equal(t, ref, k.waits())
		h, err := k.p.keyHolder(t.Context(), "k")
		require.NoError(t, err)
		got, _, err := k.p.findHeld(t.Context(), &h)
		require.NoError(t, err)
		require.Equal(t, "two", string(got.Payload))
		require.Equal(t, 2, got.Version)
	}
	k.cancel(ref)
	require.Equal(t, ref, k.mustAdd(one), "it was stored, and has ended")
	require.Empty(t, k.waits())
}

// Of records of one key that come in one call only the last is stored, and the others count as
// replaced.
func TestFollowingRecords(t *testing.T) {
	k := newKeyedJobs(t)
	var recs []driver.Record
	found := make([]driver.Ref, 5)
	for i := range found {
		recs = append(recs, k.record(fmt.Sprint("job", i), []driver.OnKey{driver.KeyLater, driver.KeyReplace}[i%2], time.Hour))
		recs[i].Found = &found[i]
	}
	for range 2 { // the second call repeats the first
		refs, errs := k.p.inserts.insert(t.Context(), recs)
		require.NoError(t, errors.Join(errs...))
		require.Equal(t, refs[4], k.waits())
		for _, ref := range refs[:4] {
			a, err := parseRef(ref, k.p.salt, k.p.of)
			require.NoError(t, err)
			ok, err := k.p.changes.cancel(t.Context(), a)
			require.NoError(t, err)
			require.False(t, ok, "it was replaced")
		}
		if found[1] != "" {
			require.Equal(t, refs[:4], found[1:])
		}
	}
}

// Many who push one job back at a time all do, and one job waits.
func TestManyPushBack(t *testing.T) {
	k := newKeyedJobs(t)
	const many = 150
	errs := make(chan error, many)
	for i := range many {
		go func() {
			_, err := k.add(k.record(fmt.Sprint("job", i), driver.KeyLater, time.Hour))
			errs <- err
		}()
	}
	for range many {
		require.NoError(t, <-errs)
	}
	require.NotEmpty(t, k.waits())
}

// After half a minute nobody knows whether a job with MaxWait was stored.
func TestLateReplace(t *testing.T) {
	k := newKeyedJobs(t)
	r := k.record("late", driver.KeyLater, 5*time.Hour)
	r.MaxWait, r.Born = time.Hour, k.now.Add(-graveTTL/2)
	_, err := k.add(r)
	require.ErrorIs(t, err, driver.ErrUncertain)
	require.Empty(t, k.waits())
}

// A claim of a job with FreeWhenBegun frees its key. If it is given back the job has not begun, and
// takes its key again, unless another job has it.
func TestReleaseTakesTheKeyAgain(t *testing.T) {
	k := newKeyedJobs(t)
	w, err := connectPartTo(t, k.p).Work(t.Context(), driver.WorkConfig{Name: "w", Kinds: driver.NewKindSet([]string{"k"}), Lease: time.Hour, Retention: time.Hour})
	require.NoError(t, err)
	p := w.(*worker).e.parts[0]
	for _, superseded := range []bool{false, true} {
		r := k.record("job", driver.KeyRefuse, 0)
		r.FreeWhenBegun = true
		if superseded {
			r.ID = "superseded"
		}
		ref := k.mustAdd(r)
		h, err := p.keyHolder(t.Context(), "k")
		require.NoError(t, err)
		_, m, err := p.findHeld(t.Context(), &h)
		require.NoError(t, err)
		d := &driver.Delivery{Ref: ref, Record: r, Exact: true}
		d.Claim = &handle{p: p.buckets, at: h.at, since: time.Now(), seq: m.Seq, record: &d.Record}
		require.Equal(t, driver.Granted, w.Claim(t.Context(), []*driver.Delivery{d})[0].Status)
		h, err = p.keyHolder(t.Context(), "k")
		require.NoError(t, err)
		require.False(t, h.alive)
		want := ref
		if superseded {
			want = k.mustAdd(k.record("newer", driver.KeyRefuse, time.Hour))
		}
		require.NoError(t, w.Release(t.Context(), []*driver.Delivery{d}, 0))
		h, err = p.keyHolder(t.Context(), "k")
		require.NoError(t, err)
		require.True(t, h.alive)
		require.Equal(t, want, h.ref)
		k.cancel(ref)
	}
}

// Nobody reads the key of a job that has none. The forward of one that was moved and canceled goes, all the same.
func TestTidyWithoutKey(t *testing.T) {
	t.Parallel()
	c := &observed{srv: newServer(t), text: []byte("TW_default_0.k.")}
	p := connectPart(t, c)
	now := p.Now().Truncate(time.Microsecond)
	r := recordAt("job", now.Add(time.Minute), now)
	require.NoError(t, p.insertOne(t.Context(), r))
	a := address{bucket: p.nearOf(r.Due), born: now.UnixMicro(), id: r.ID}
	ok, err := p.changes.move(t.Context(), a, r.Due.Add(time.Minute))
	require.NoError(t, err)
	require.True(t, ok)
	at, _, err := p.forwarded(t.Context(), a)
	require.NoError(t, err)
	ok, err = p.changes.cancel(t.Context(), a)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, p.changes.tidy(t.Context(), &r, at))
	m, err := p.Last(t.Context(), p.forward(r.ID))
	require.NoError(t, err)
	require.NotZero(t, m.Seq)
	require.Empty(t, m.Data, "a tombstone")
	require.Zero(t, c.seen.Load(), "requests that name the key")
	_, err = p.Last(t.Context(), p.keySubject(""))
	require.NoError(t, err)
	require.NotZero(t, c.seen.Load(), "it is seen if there is one")
}

// observed counts what a client sends that has a text.
type observed struct {
	srv  *server.Server
	text []byte
	seen atomic.Int64
}

func (o *observed) InProcessConn() (net.Conn, error) {
	c, err := o.srv.InProcessConn()
	return observedConn{c, o}, err
}

type observedConn struct {
	net.Conn
	of *observed
}

func (c observedConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.of.text) {
		c.of.seen.Add(1)
	}
	return c.Conn.Write(b)
}
