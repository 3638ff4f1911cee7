package jetstream

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// A near bucket has some queues, each of them a subject, q.<bucket>.<queue>, and workers share a
// consumer for each queue. Its name says of which kinds its jobs are:
//
//	_<hash>   the kinds that the same workers can run: the hash is that of all these kinds
//	<hash>    one kind: one that no worker can run, or that is apart
//	_         any kinds: stored while no worker was known
//
// So where all workers run the same kinds, and however many, a bucket has one consumer, and
// that one subject. A kind is apart if it has a limit, or was shut, in some worker: that one
// leaves its queue alone while it has no room for it, and takes from the others.
//
// Each heartbeat says which kinds its worker can run. Whoever stores a job chooses the queue by the
// heartbeats as they were some seconds ago. That may be wrong, and then costs time and no job: a
// worker reads all queues but those that it knows to be others', and what it is handed there
// and cannot run it stores in the right one (setAside).

// taking tells which queues a worker reads, and whether it takes jobs of them now. It has no lock: the fleet is replaced as
// a whole, and the kinds of a worker are fixed but for which are open, which their set says.
type taking struct {
	*heart
	queues *queues
	kinds  map[string][]string // of this worker, by hash
}

// reads reports whether a queue is for this worker to read: it has some of its kinds, or nobody
// knows what it has. Of the kinds of a shared queue it can run all or none.
func (t *taking) reads(queue string) bool {
	if isOneKind(queue) {
		return t.kinds[queue] != nil
	}
	hashes := t.queues.fleet.Load().shared[queue]
	return hashes == nil || t.kinds[hashes[0]] != nil
}

// own returns the queues where jobs of this worker are to be expected, shared ones first.
func (t *taking) own() []string {
	own := map[string]bool{}
	fl := t.queues.fleet.Load()
	for h := range t.kinds {
		own[fl.queueOfHash(h)] = true
	}
	return slices.SortedFunc(maps.Keys(own), func(a, b string) int {
		if isOneKind(a) != isOneKind(b) && isOneKind(b) {
			return -1
		}
		return strings.Compare(a, b)
	})
}

// isOpen reports whether the worker takes jobs of one of a queue's kinds, and returns a channel
// that is closed when that may have changed.
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
		if open {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

func has(sorted []string, s string) bool {
	_, ok := slices.BinarySearch(sorted, s)
	return ok
}
