package enginetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// Jobs are handed out before they are due, as the worker has asked for, wherever they are
// kept until then, and while what was due before ends and is removed. The lateness of a busy
// machine is measured at the same time: by an insert, and by a plain timer beside each job.
func ahead(t *testing.T, s Store) {
	const n, asked = 120, 100 * time.Millisecond
	e := s.Open(t)
	r := open(t, e)
	w := newHasty(t, e, asked)
	slowest := time.Duration(0)
	timers := make(chan time.Duration, n) // by how much each was late
	for i := range n {
		began := time.Now()
		after := 1100*time.Millisecond + time.Duration(i%2)*2*time.Second
		r.add(durable.Job{Kind: kind, After: after})
		slowest = max(slowest, time.Since(began))
		time.AfterFunc(time.Until(began.Add(after)), func() { timers <- time.Since(began.Add(after)) })
		time.Sleep(37 * time.Millisecond)
	}
	var before []time.Duration
	for len(before) < n {
		select {
		case d := <-w.before:
			before = append(before, d)
		case <-time.After(patience):
			require.FailNow(t, "not handed out", "%d of %d", len(before), n)
		}
	}
	w.drain()
	slices.Sort(before)
	lateTimers := make([]time.Duration, n)
	for i := range lateTimers {
		lateTimers[i] = <-timers
	}
	slices.Sort(lateTimers)
	late, _ := slices.BinarySearch(before, -2*(slowest+lateTimers[n*9/10]))
	t.Logf("handed out before they were due: at least %v, p10 %v, p50 %v; an insert took %v at most, and timers were late by %v (p90)",
		before[0], before[n/10], before[n/2], slowest, lateTimers[n*9/10])
	require.LessOrEqual(t, late, n/10)
	empty(t, r)
}

// hasty is a worker that ends each job when it is handed out.
type hasty struct {
	driver.Worker
	before chan time.Duration // for how long each was handed out before it was due
	drain  func()
}

func newHasty(t *testing.T, e driver.Engine, ahead time.Duration) *hasty {
	worker := work(t, e, "hasty", func(c *driver.WorkConfig) { c.Lease, c.Ahead = time.Minute, ahead })
	w := &hasty{Worker: worker, before: make(chan time.Duration, 1000)}
	w.drain = feeding(t, w, func(hs []*driver.Delivery) { w.end(t, e, hs) })
	return w
}

func (w *hasty) end(t *testing.T, e driver.Engine, hs []*driver.Delivery) {
	now, _, err := e.Now(context.Background())
	if err != nil {
		t.Error(err)
	}
	for _, h := range endGranted(t, w, hs, nil) {
		w.before <- h.Record.Due.Sub(now)
	}
}
