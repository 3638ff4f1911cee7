package jetstream

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// queues knows in which queue of a near bucket the jobs of a kind are stored, by the last heartbeats of all workers.
// A fleet is never changed once others can read it; consulting lets one call read the heartbeats. What it says may be
// old: that costs time, and no job.
type queues struct {
	*buckets
	fleet      atomic.Pointer[fleet] // nil: not read yet
	consulting sync.Mutex
}

func newQueues(b *buckets) *queues {
	q := &queues{buckets: b}
	b.forget = append(b.forget, func() {
		if fl := q.fleet.Load(); fl != nil {
			old := *fl
			old.read = time.Time{}
			q.fleet.CompareAndSwap(fl, &old)
		}
	})
	return q
}

// nearSubject is where a job of a kind is stored in a near bucket.
func (q *queues) nearSubject(bucket int64, kind string) string {
	return q.queueSubject(bucket, q.fleet.Load().queueOf(kind))
}

// consult reads what the heartbeats say, if that was not done lately. Without an answer, or while
// another call reads them, what was known before counts: a job may be stored in any queue.
func (q *queues) consult(ctx context.Context) {
	if !q.fleet.Load().isOld() || !q.consulting.TryLock() {
		return
	}
	defer q.consulting.Unlock()
	was := q.fleet.Load()
	if !was.isOld() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	lives, _, err := q.lives(ctx)
	fl := fleetOf(slices.Collect(maps.Values(lives)))
	if err != nil && was != nil {
		fl.queues, fl.shared = was.queues, was.shared
	}
	q.fleet.CompareAndSwap(was, fl) // a worker knows it better
}
