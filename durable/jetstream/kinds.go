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

	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// A near bucket has some queues, each of them a subject, q.<bucket>.<queue>, and workers share a
// consumer for each queue. Its name says of which kinds its jobs are:
//
//	_<hash>   the kinds that the same workers can run: the hash is that of all these kinds
//	<hash>    one kind: one that no worker can run, or that is apart
//	_         any kinds: stored while no worker was known
//
// So where all workers run the same kinds, and however many, a bucket has one consumer, and that
// one subject. A kind is apart if it has a limit, or was shut, in some worker: that one leaves its
// queue alone while it has no room for it, and takes from the others.
//
// Each heartbeat says which kinds its worker can run. The queue of a job is chosen by the
// heartbeats as they were some seconds ago. That may be wrong, and then costs time and no job: a
// worker reads all queues except those that it knows to be others', and a job there that it cannot
// run it stores in the right one (setAside).
//
// Rejected: a queue for each kind, since each is a consumer in each 5 s, and a server makes 40 a
// second; and one queue for all, since a worker would be handed jobs that it must give back.

// pollEvery is how often a worker looks for buckets that have begun. It bounds the time that a job
// is late of which no reader waits for messages: those of new kinds, and of buckets that got
// something late.
const pollEvery = 500 * time.Millisecond

// queues knows in which queue of a near bucket the jobs of a kind are stored, by the last
// heartbeats of all workers. Its answer may be old: that costs time, and no job.
//
// A fleet is never changed once others can read it, so it needs no lock. Consulting lets one call
// read the heartbeats; the others do not wait for it.
type queues struct {
	*buckets
	fleet      atomic.Pointer[fleet] // nil: not read yet.
	consulting sync.Mutex
}

// newQueues returns queues that know no worker. When the stream went back the fleet counts as old,
// and is still used until it is read: any queue is right.
func newQueues(b *buckets) *queues {
	q := &queues{buckets: b}
	b.Drop = append(b.Drop, func() {
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

// consult reads what the heartbeats say, if that was not done lately, for processes that store jobs
// without a worker of their own. Without an answer, or while another call reads them, the fleet of
// before counts: a job may be stored in any queue. After a failure, no call asks again until the
// fleet is old once more.
func (q *queues) consult(ctx context.Context) {
	if !q.fleet.Load().isOld() || !q.consulting.TryLock() {
		return
	}
	defer q.consulting.Unlock()
	was := q.fleet.Load()
	if !was.isOld() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stream.AnswerTimeout)
	defer cancel()
	lives, _, err := q.lives(ctx)
	fl := fleetOf(slices.Collect(maps.Values(lives)))
	if err != nil && was != nil {
		fl.queues, fl.shared = was.queues, was.shared
	}
	q.fleet.CompareAndSwap(was, fl) // a worker of this process may have read later
}

// confirm notes that the heartbeats are still as they were read.
func (q *queues) confirm() {
	if was := q.fleet.Load(); was != nil && !was.read.IsZero() {
		now := *was
		now.read = time.Now()
		q.fleet.CompareAndSwap(was, &now)
	}
}

// anyQueue is the queue of the jobs that were stored while no worker was known. All workers read
// it.
const anyQueue = "_"

// isOneKind reports whether a queue is that of one kind.
func isOneKind(queue string) bool { return !strings.HasPrefix(queue, "_") }

// fleet is what the heartbeats of all workers say, also of dead ones, as long as their messages
// last.
type fleet struct {
	read   time.Time           // By this machine's clock; zero: it counts as old.
	queues map[string]string   // Of each kind that a worker can run, by its hash.
	shared map[string][]string // Which kinds, by their hashes, have a queue together.
}

// fleetOf finds out which kinds the same workers can run: those have a queue together, whose name
// is the hash of all their hashes. So all processes that read the same heartbeats, in any order,
// choose the same queue.
//
// Workers that run the same kinds count once, so the memory is that of the different sets of kinds.
func fleetOf(lives []life) *fleet {
	fl := &fleet{read: time.Now(), queues: map[string]string{}, shared: map[string][]string{}}
	who, sets := map[string]string{}, map[string]bool{} // workers that run the same kinds count once
	for _, l := range lives {
		for _, t := range l.Apart {
			fl.queues[t] = t
		}
		set := hashOf(strings.Join(l.Kinds, " "))
		if !sets[set] {
			sets[set] = true
			for _, t := range l.Kinds {
				who[t] += fmt.Sprint(len(sets), " ")
			}
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

// queueOf returns where the jobs of a kind are stored. Nil is a fleet of which nothing is known. A
// kind that no worker can run has a queue by itself, so that the others can be removed while its
// jobs wait.
func (fl *fleet) queueOf(kind string) string {
	if fl == nil || len(fl.queues) == 0 {
		return anyQueue
	}
	return fl.queueOfHash(hashOf(kind))
}

func (fl *fleet) queueOfHash(hash string) string { return cmp.Or(fl.queues[hash], hash) }

// isNobodys reports whether a queue is that of a kind that no worker can run. No consumer tells how
// far such a queue has ended.
func (fl *fleet) isNobodys(queue string) bool {
	return isOneKind(queue) && fl.queues[queue] == ""
}

// isOld reports whether the heartbeats are to be read again, where no worker does that all the
// time. While no worker is known it is soon: the first worker's kinds should not all go to
// anyQueue.
func (fl *fleet) isOld() bool {
	return fl == nil || time.Since(fl.read) > 5*time.Second || len(fl.queues) == 0 && time.Since(fl.read) > pollEvery
}

// spot is a queue of a near bucket, which one reader of a Fetch reads.
type spot struct {
	bucket int64
	queue  string
}

func (at spot) consumer() string { return "q" + itoa(at.bucket) + "_" + at.queue }

// taking tells which queues a worker reads, and whether it takes jobs of them now. It has no lock:
// the fleet is replaced as a whole, the kinds of a worker are fixed, and their set says which of
// them are open.
type taking struct {
	*heart
	queues *queues
	kinds  map[string][]string // Of this worker, by hash.
}

// reads reports whether a queue is for this worker to read: it has some of its kinds, or nobody
// knows which it has. It can run all kinds of a shared queue or none, by the heartbeats that made
// the queue: so one is enough.
func (t *taking) reads(queue string) bool {
	if isOneKind(queue) {
		return t.kinds[queue] != nil
	}
	hashes := t.queues.fleet.Load().shared[queue]
	return hashes == nil || t.kinds[hashes[0]] != nil
}

// own returns the queues where jobs of this worker are to be expected, shared ones first: a caller
// that attends only some of them attends those of most kinds. The order is the same at each poll.
func (t *taking) own() []string {
	own := map[string]bool{}
	fl := t.queues.fleet.Load()
	for h := range t.kinds {
		own[fl.queueOfHash(h)] = true
	}
	return slices.SortedFunc(maps.Keys(own), func(a, b string) int {
		switch one := isOneKind(a); {
		case one == isOneKind(b):
			return strings.Compare(a, b)
		case one:
			return 1
		}
		return -1
	})
}

// isOpen reports whether the worker takes jobs of one of a queue's kinds, and returns a channel
// that is closed when that may have changed. One open kind of a shared queue is enough: jobs of the
// others are set aside.
//
// While all kinds of the worker are open, which is so most of the time, no list of kinds is
// searched.
func (t *taking) isOpen(queue string) (bool, <-chan struct{}) {
	open, changed := t.c.Kinds.Open()
	hashes := t.queues.fleet.Load().shared[queue]
	switch {
	case isOneKind(queue):
		hashes = []string{queue}
	case hashes == nil || len(open) == len(t.c.Kinds.All()):
		return len(open) > 0, changed
	}
	return slices.ContainsFunc(hashes, func(h string) bool {
		return slices.ContainsFunc(t.kinds[h], func(kind string) bool { return has(open, kind) })
	}), changed
}

// awaitOpen waits until the worker takes jobs of one of a queue's kinds; false if ctx has ended.
func (t *taking) awaitOpen(ctx context.Context, queue string) bool {
	for {
		open, changed := t.isOpen(queue)
		if open || ctx.Err() != nil {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

func has(sorted []string, s string) bool {
	_, ok := slices.BinarySearch(sorted, s)
	return ok
}
