package jetstream

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// pollEvery is how often a worker looks what is due.
const pollEvery = 500 * time.Millisecond

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
	b.drop = append(b.drop, func() {
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

// anyQueue is the queue of the jobs that were stored while no worker was known.
const anyQueue = "_"

// isOneKind reports whether a queue is that of one kind.
func isOneKind(queue string) bool { return !strings.HasPrefix(queue, "_") }

// fleet is what the heartbeats of all workers say.
type fleet struct {
	read   time.Time
	queues map[string]string   // of each kind that a worker can run, by its hash
	shared map[string][]string // which kinds have a queue together
}

// fleetOf finds out which kinds the same workers can run.
func fleetOf(lives []life) *fleet {
	fl := &fleet{read: time.Now(), queues: map[string]string{}, shared: map[string][]string{}}
	who, sets := map[string]string{}, map[string]bool{} // workers that run the same kinds count once
	for _, l := range lives {
		set := hashOf(strings.Join(l.Kinds, " "))
		if !sets[set] {
			sets[set] = true
			for _, t := range l.Kinds {
				who[t] += fmt.Sprint(len(sets), " ")
			}
		}
	}
	for _, l := range lives {
		for _, t := range l.Apart {
			fl.queues[t] = t
		}
	}
	alike := map[string][]string{}
	for t, workers := range who {
		if fl.queues[t] == "" {
			alike[workers] = append(alike[workers], t)
		}
	}
	for _, hashes := range alike {
		slices.Sort(hashes)
		queue := "_" + hashOf(strings.Join(hashes, " "))
		fl.shared[queue] = hashes
		for _, h := range hashes {
			fl.queues[h] = queue
		}
	}
	return fl
}

// queueOf returns where the jobs of a kind are stored. Nil is a fleet of which nothing is known.
func (fl *fleet) queueOf(kind string) string {
	if fl == nil || len(fl.queues) == 0 {
		return anyQueue
	}
	return fl.queueOfHash(hashOf(kind))
}

func (fl *fleet) queueOfHash(hash string) string { return cmp.Or(fl.queues[hash], hash) }

// isNobodys reports whether a queue is that of a kind that no worker can run.
func (fl *fleet) isNobodys(queue string) bool {
	_, ok := fl.queues[queue]
	return isOneKind(queue) && !ok
}

// isOld reports whether the heartbeats are to be read again, where no worker does that all the time.
func (fl *fleet) isOld() bool {
	return fl == nil || time.Since(fl.read) > 5*time.Second || len(fl.queues) == 0 && time.Since(fl.read) > pollEvery
}

// spot is what one reader reads: a queue of a near bucket.
type spot struct {
	bucket int64
	queue  string
}

func (at spot) consumer() string { return "q" + itoa(at.bucket) + "_" + at.queue }
