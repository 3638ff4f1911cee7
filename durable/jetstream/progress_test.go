package jetstream

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// Progress of thousands of jobs takes few requests, also of jobs that were moved, and says of each what Cancel
// would find.
func TestProgressRequests(t *testing.T) {
	p := newPart(t, WithBuckets(Buckets{Near: time.Hour, Far: 24 * time.Hour, Lead: time.Minute, Settle: time.Minute}))
	const n = 1000
	now := p.Now().Truncate(time.Microsecond)
	due, closed := now.Add(10*time.Hour), now.Add(5*time.Hour)
	recs, want := make([]driver.Record, n), make([]driver.Progress, n)
	for i := range recs {
		recs[i] = recordAt(strconv.Itoa(i), due, now)
		if i%8 == 7 {
			recs[i] = recordAt(strconv.Itoa(i), closed, now)
		}
	}
	refs, errs := p.inserts.insert(t.Context(), recs)
	e := newEngine("default", []*part{p}, nil)
	put := func(at location, s status) {
		s.token = "t"
		require.NoError(t, p.Write(t.Context(), stream.Write{Subject: p.statusSubject(at), Data: s.encode()}))
	}
	waits := func(at time.Time) driver.Progress {
		return driver.Progress{State: driver.Waiting, Due: p.start(p.nearOf(at))}
	}
	for i := range recs {
		require.NoError(t, errs[i])
		at := location{id: recs[i].ID, bucket: p.nearOf(recs[i].Due)}
		switch i % 8 {
		case 0:
			want[i] = waits(due)
		case 1:
			put(at, status{fate: claimed, worker: "w", attempt: 1})
			want[i] = driver.Progress{State: driver.Running}
		case 2:
			put(at, status{fate: freed, attempt: 1})
			want[i] = waits(due)
		case 3:
			put(at, status{fate: done})
			want[i] = driver.Progress{State: driver.StateDone}
		case 4:
			put(at, status{fate: dead})
			want[i] = driver.Progress{State: driver.Dead}
		case 5, 6:
			for k := range i % 3 { // twice, and not at all
				to := due.Add(time.Duration(k+1) * time.Hour)
				ok, err := e.Move(t.Context(), refs[i], to)
				require.NoError(t, err)
				require.True(t, ok)
				at.bucket, at.version = p.nearOf(to), k+1
			}
			want[i] = waits(due.Add(time.Duration(i%3) * time.Hour))
			if i%8 == 6 {
				put(at, status{fate: canceled})
				want[i] = driver.Progress{State: driver.StateCanceled}
			}
		case 7:
			want[i] = driver.Progress{State: driver.Dead} // or not: nothing is left
		}
	}
	require.NoError(t, p.Write(t.Context(), p.mark(p.nearMark(p.nearOf(closed)))))

	before := p.Conn.NC.Stats().OutMsgs
	all, errs := e.Progress(t.Context(), append(refs, "no"))
	require.LessOrEqual(t, p.Conn.NC.Stats().OutMsgs-before, uint64(2*(n/progressSize+1)+10))
	require.ErrorIs(t, errs[n], driver.ErrNotFound)
	for i, w := range want {
		require.NoError(t, errs[i])
		require.Equal(t, w, all[i], "job %d", i)
		a, err := parseRef(refs[i], p.salt, 1)
		require.NoError(t, err)
		alone, err := p.progressOf(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, w.State == driver.Waiting || w.State == driver.Running, alone.State == driver.Waiting || alone.State == driver.Running, "job %d", i)
	}
}
