package jetstream

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// What is cached of a stream that went back is dropped.
func TestWentBackDropsCaches(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	p.mu.Lock()
	p.leases.sightings["w"] = sighting{seq: 1, at: time.Now()}
	p.mu.Unlock()
	p.quotas.all["1.-"] = &quota{read: time.Now(), swept: time.Now()}
	p.queues.fleet.Store(&fleet{read: time.Now(), queues: map[string]string{"a": "b"}})
	p.WentBack(p.Backs(), 0, "a test")
	require.EqualValues(t, 1, p.Backs())
	require.Empty(t, p.leases.sightings)
	require.Zero(t, p.quotas.all["1.-"].read)
	require.Zero(t, p.quotas.all["1.-"].swept)
	require.True(t, p.queues.fleet.Load().isOld())
}

// What is removed by sequences of before the stream went back would be others' jobs.
func TestNoPurgeBySequencesOfBefore(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	f := newFetcher(p, newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{}), nil)
	f.closer.closing = p.Backs()
	_, err := p.WriteSeq(t.Context(), stream.Write{Subject: p.queueSubject(7, "_"), Data: []byte("a job")})
	require.NoError(t, err)
	p.WentBack(f.closer.closing, 0, "a test")
	require.ErrorIs(t, f.closer.purgeEnded(t.Context(), 7, map[string]uint64{"_": 100}), stream.ErrWentBack)
	m, err := p.Last(t.Context(), p.queueSubject(7, "_"))
	require.NoError(t, err)
	require.NotZero(t, m.Seq)
}

// One look at all buckets that takes long, as while a server stands still, does not put the next one off for minutes, in which
// overdue jobs would wait.
func TestLookAfterASlowOne(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	f := newFetcher(p, newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{}), nil)
	f.seen.viewed, f.seen.nearTook = time.Now().Add(-31*time.Second), 19*time.Second
	v, err := f.poll(t.Context())
	require.NoError(t, err)
	require.True(t, v.all)
}
