package jetstream

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// Each sign that a stream went back is seen once, and drops what is cached; a stream that stays as it was gives none.
func TestSignsOfAStreamThatWentBack(t *testing.T) {
	t.Parallel()
	put := func(p *part) uint64 {
		n, err := p.writeSeq(t.Context(), write{subject: p.deadSubject("x"), data: []byte(time.Now().String())})
		require.NoError(t, err)
		return n
	}
	look := func(p *part) {
		require.NoError(t, p.lookBack(t.Context(), p.testify))
		require.NoError(t, p.sync(t.Context()))
	}
	signs := map[string]func(p *part){
		"the last sequence of the stream is lower": func(p *part) {
			p.history.high += 10
			look(p)
		},
		"a write has a sequence that was there": func(p *part) {
			p.history.high += 10
			put(p)
		},
		"another message has the sequence of an own one": func(p *part) {
			look(p)
			p.history.prev.data = []byte("another")
			look(p)
		},
		"it was made anew": func(p *part) {
			p.created.Add(1)
			look(p)
		},
	}
	for name, sign := range signs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPart(t)
			for range 3 {
				put(p)
				look(p)
				require.NoError(t, p.purge(t.Context(), p.deadSubject("x"), 0)) // a landmark that is gone says nothing
				look(p)
			}
			put(p)
			require.Zero(t, p.backs())
			p.mu.Lock()
			p.leases.sightings["w"] = sighting{seq: 1, at: time.Now()}
			p.mu.Unlock()
			p.quotas.all["1.-"] = &quota{read: time.Now(), swept: time.Now()}
			p.queues.fleet.Store(&fleet{read: time.Now(), queues: map[string]string{"a": "b"}})
			sign(p)
			require.EqualValues(t, 1, p.backs())
			require.Empty(t, p.leases.sightings)
			require.Zero(t, p.quotas.all["1.-"].read)
			require.Zero(t, p.quotas.all["1.-"].swept)
			require.True(t, p.queues.fleet.Load().isOld())
			put(p)
			look(p)
			put(p)
			look(p)
			look(p)
			require.EqualValues(t, 1, p.backs())
		})
	}
}

// What is removed by sequences of before the stream went back would be others' jobs.
func TestNoPurgeBySequencesOfBefore(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	f := newFetcher(p, newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{}), nil)
	f.closer.closing = p.backs()
	_, err := p.writeSeq(t.Context(), write{subject: p.queueSubject(7, "_"), data: []byte("a job")})
	require.NoError(t, err)
	p.wentBack(f.closer.closing, 0, "a test")
	require.ErrorIs(t, f.closer.purgeEnded(t.Context(), 7, map[string]uint64{"_": 100}), errWentBack)
	m, err := p.last(t.Context(), p.queueSubject(7, "_"))
	require.NoError(t, err)
	require.NotZero(t, m.Seq)
}
