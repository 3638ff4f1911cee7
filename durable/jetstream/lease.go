package jetstream

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// heart is a worker as others know it: one message of the subject w.<name> in each partition, which
// is written anew with every heartbeat. A worker that finds a job claimed reads there whether its
// holder lives, by the server's time of that message. Nothing outside this file decides whether a
// lease has ended.
//
// Mu guards all but c and others, and is held for no request. A heartbeat renews all claims of a
// worker at once: their number costs nothing.
type heart struct {
	c      driver.WorkConfig
	others atomic.Int64 // Workers beside this one, as far as it is known.

	mu         sync.Mutex
	heartbeats []stream.Message // The last one of each partition, as the server has it.
	over       bool             // A heartbeat has found that the lease had ended, and Heartbeat has not said so yet.
	life       life             // As heartbeats have shown it.
	backs      []int64          // history.backs of the heartbeats.
}

// leases is what this process has seen of the heartbeats in a partition. Mu guards the sightings,
// and is held for no request. The clock of this machine counts here only where the server's cannot:
// when that was set.
type leases struct {
	*buckets

	mu        sync.Mutex
	sightings map[string]sighting // Of other workers, for an hour at least.
}

// newLeases returns leases that have seen nothing. Sightings are dropped when the stream went back:
// another heartbeat may have the same sequence then, and would look unchanged.
func newLeases(b *buckets) *leases {
	l := &leases{buckets: b, sightings: map[string]sighting{}}
	b.Drop = append(b.Drop, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		clear(l.sightings)
	})
	return l
}

// sighting is a heartbeat that was seen here first at a time of this machine's clock.
type sighting struct {
	seq uint64 // the sequence of its message; 0 for none
	at  time.Time
}

// life is what a heartbeat says: the hashes of the kinds that its worker can run, sorted, and those
// of them that are apart. Others hold copies of it, so its slices are replaced, and never changed.
type life struct {
	Lease time.Duration `json:"lease"`
	Kinds []string      `json:"kinds,omitempty"`
	Apart []string      `json:"apart,omitempty"`

	// For listings: the first kinds by their names, and how many there are.
	Names []string `json:"names,omitempty"`
	All   int      `json:"all,omitempty"`
}

// newLife returns what a worker says of itself at first: kinds with a limit are apart from the
// beginning, others once they were shut.
func newLife(c driver.WorkConfig) life {
	kinds := c.Kinds.All()
	l := life{Lease: c.Lease, Names: kinds[:min(len(kinds), driver.ShownKinds)], All: len(kinds)}
	for _, kind := range kinds {
		l.Kinds = append(l.Kinds, hashOf(kind))
		if c.Kinds.Limited(kind) {
			l.setApart(hashOf(kind))
		}
	}
	l.Kinds = slices.Compact(slices.Sorted(slices.Values(l.Kinds)))
	return l
}

// setApart says that a kind is apart, if not too many are. A kind stays apart for as long as the
// worker lives.
func (l *life) setApart(hash string) {
	if len(l.Apart) < maxApart && !slices.Contains(l.Apart, hash) {
		l.Apart = append(slices.Clone(l.Apart), hash) // others may read the old one
	}
}

// maxApart is how many kinds of a worker are apart at most: a worker waits at the queue of each.
const maxApart = 64

// own returns what the worker says of itself, and whether that is something else than before: Kinds
// are fixed, and Apart only grows, so the lengths tell.
func (ht *heart) own(before life) (now life, changed bool) {
	ht.mu.Lock()
	defer ht.mu.Unlock()
	return ht.life, len(ht.life.Kinds) != len(before.Kinds) || len(ht.life.Apart) != len(before.Apart)
}

// setApart says that a kind is apart from now on, because it was shut.
func (ht *heart) setApart(kind string) {
	ht.mu.Lock()
	defer ht.mu.Unlock()
	ht.life.setApart(hashOf(kind))
}

// writeHeartbeat writes the heartbeat of a partition, and returns it as a witness. It lasts for two
// leases and a little, so that a dead worker is found with a message that is old, and not with
// none.
func (ht *heart) writeHeartbeat(ctx context.Context, p *buckets) (stream.Witness, error) {
	own, _ := ht.own(life{})
	data, _ := json.Marshal(own) // strings and numbers have no error
	subject := p.workerSubject(ht.c.Name)
	written, err := p.WriteSeq(ctx, stream.Write{Subject: subject, Data: data, Rollup: true, TTL: 2*ht.c.Lease + 10*time.Second})
	return stream.Witness{Subject: subject, Seq: written}, err
}

// noteHeartbeat notes a heartbeat, and whether the lease had ended before: by the server's times of
// the two messages, as others judge it. If two heartbeats overlap, the later one counts.
//
// The first heartbeat after the stream went back is compared with none: times of two histories say
// nothing.
func (ht *heart) noteHeartbeat(p *buckets, now stream.Message) {
	ht.mu.Lock()
	defer ht.mu.Unlock()
	before := ht.heartbeats[p.number]
	if backs := p.Backs(); ht.backs[p.number] != backs {
		ht.backs[p.number], before = backs, stream.Message{}
	}
	if now.Seq <= before.Seq {
		return
	}
	ht.heartbeats[p.number] = now
	ht.over = ht.over || before.Seq > 0 && now.Time.Sub(before.Time) > ht.c.Lease
}

// leaseOf returns how long a worker's lease still lasts; it has ended if that is not positive. It
// has ended if there is no message: that of a worker that has taken leave is removed, that of one
// that died is kept for longer than its lease.
//
// That is so by the server's clock, if that was not set. It was if a heartbeat lies in the future;
// and a clock that is set forward makes heartbeats look old, or removes them. Then a heartbeat is
// watched by the clock of this machine: if it is the same for the length of a lease, the lease has
// ended.
//
// Before a lease counts as ended the heartbeat is read once more, as of now: a leader that was
// deposed and does not know shows old ones. The clock is read before each poll: a heartbeat that
// comes after that is in time. With an error nobody knows, and the claim is left to its worker.
//
// A lease that lasts costs one read. One that has ended costs the clock as well, and on several
// replicas a write: a heartbeat of this worker, as a witness. A mistake here lets two workers run
// one job, so these are never left out.
func (ht *heart) leaseOf(ctx context.Context, p *leases, worker string) (time.Duration, error) {
	now, off := p.Clock.Now()
	m, err := p.Last(ctx, p.workerSubject(worker))
	if err != nil {
		return 0, err
	}
	if left, err := ht.leaseBy(p, worker, now.Add(-off), m); err != nil || left > 0 {
		return left, err
	}
	if err := p.Clock.Sync(ctx); err != nil { // it may have been set this moment
		return 0, err
	}
	if p.Replicas() > 1 && worker != ht.c.Name {
		written, err := ht.writeHeartbeat(ctx, p.buckets)
		if err != nil {
			return 0, err
		}
		now, off = p.Clock.Now()
		if m, err = p.LastSince(ctx, written, p.workerSubject(worker), false); err != nil {
			return 0, err
		}
	}
	return ht.leaseBy(p, worker, now.Add(-off), m)
}

// leaseBy is leaseOf by the heartbeat that was read, at a time that is not later than the server's:
// an error of the clock makes a lease longer, and never shorter.
func (ht *heart) leaseBy(p *leases, worker string, now time.Time, m stream.Message) (time.Duration, error) {
	l := life{Lease: ht.c.Lease} // one that is not there any more is taken to have had the same
	if m.Seq > 0 {
		if err := json.Unmarshal(m.Data, &l); err != nil {
			return 0, fmt.Errorf("%w: cannot read a worker's lease: %w", driver.ErrStorage, err)
		}
	}
	unchanged := p.unchangedFor(worker, m.Seq)
	switch step := p.Clock.Step(); {
	case step.Count > 0 && time.Since(step.Seen) <= l.Lease:
		return l.Lease - unchanged, nil
	case m.Seq == 0:
		return 0, nil
	}
	return min(p.ServerTime(m.Time).Add(l.Lease).Sub(now), l.Lease-unchanged), nil
}

// unchangedFor returns for how long a worker's heartbeat has been the same, as far as it was polled
// from here: 0 at the first time. Sightings of workers that nobody asks for are forgotten after an
// hour.
func (l *leases) unchangedFor(worker string, seq uint64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := l.sightings[worker]; ok && s.seq == seq {
		return time.Since(s.at)
	}
	maps.DeleteFunc(l.sightings, func(_ string, s sighting) bool { return time.Since(s.at) > time.Hour })
	l.sightings[worker] = sighting{seq: seq, at: time.Now()}
	return 0
}

// lives returns what the heartbeats of all workers say, and the messages, by subject. Any server
// may answer: it is for queues and for listings, and decides about no lease.
func (b *buckets) lives(ctx context.Context) (map[string]life, map[string]stream.Message, error) {
	heartbeats, err := b.LastsIn(ctx, b.workerSubject("*"))
	if err != nil {
		return nil, nil, err
	}
	lives := make(map[string]life, len(heartbeats))
	for subject, m := range heartbeats {
		var l life
		if json.Unmarshal(m.Data, &l) == nil { // else leaseOf says so
			lives[subject] = l
		}
	}
	return lives, heartbeats, nil
}

// report tells the Queue.
func (ht *heart) report(n driver.Notice) {
	if ht.c.Notify != nil {
		ht.c.Notify(n)
	}
}

// soon is the pause between two comparisons, and between two claims of a job that another worker
// has: that one may find that it does not know the claim, long before its lease has ended.
func (ht *heart) soon() time.Duration { return min(ht.c.Lease/8, 3*time.Second) }

// kindsBy returns the worker's kinds by their hashes: mostly one each.
func (ht *heart) kindsBy() map[string][]string {
	kinds := map[string][]string{}
	for _, kind := range ht.c.Kinds.All() {
		kinds[hashOf(kind)] = append(kinds[hashOf(kind)], kind)
	}
	return kinds
}

// hashOf returns the hash of a kind, or of a set of kinds, which stands for it in subjects, since a
// kind may be any text. Two kinds that have the same one are handed out together, and given back by
// a worker that cannot run them. So 40 bits are enough: a collision costs time, and no job.
func hashOf(text string) string { return hashedTo(text, 5) }

// hashedTo has as many bytes of a hash, as letters and digits where these are a multiple of 5.
func hashedTo(text string, bytes int) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:bytes]))
}
