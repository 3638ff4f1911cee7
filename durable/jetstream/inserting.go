package jetstream

import (
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// inserts stores new jobs. It knows no worker, and claims nothing.
//
// Turns are locks of this process, each for the keys of some hashes, and taken in one order. They
// spare conflicts, and decide nothing: the conditions of the commits do, since other processes have
// turns of their own. A turn is a channel, and not a Mutex, so that a call stops waiting when its
// ctx ends.
type inserts struct {
	*keys
	records   *records
	admission *admission
	turns     [32]chan struct{} // Of inserts that may replace a job, by the hash of their key.
}

func newInserts(k *keys, r *records, a *admission) *inserts {
	is := &inserts{keys: k, records: r, admission: a}
	for i := range is.turns {
		is.turns[i] = make(chan struct{}, 1)
	}
	return is
}

// inserting is a record on its way. One call has it, so it needs no lock.
//
// Its ID and its bucket do not change once a try may have stored it: all copies have one status, so
// they are one job.
type inserting struct {
	r         *driver.Record
	group     stream.Group // Its last write stores the record, until repeat adds a note.
	displaced bool         // It goes to another bucket than that of its time, with a forward.
	tried     bool         // An earlier try may have stored it.
	err       error        // Of the last try.
}

// insertion returns the first try to store a record, as far as the watermark is known here. If the
// bucket of its time is below that, the record goes to the first open bucket, as its second
// version. That is so only if it is fresh: any other may have been stored, and run, before its
// bucket was closed.
//
// A plain record is one message. A displaced one is two, with a forward that nobody has written
// before: an earlier forward would be that of a copy.
func (is *inserts) insertion(r *driver.Record) *inserting {
	bucket := is.openFor(r.Due)
	if bucket == is.nearOf(r.Due) || !is.fresh(r) {
		return &inserting{r: r, group: stream.Group{is.records.recordWrite(r, nil, is.nearOf(r.Due), r.Born, false)}}
	}
	in := &inserting{r: r, displaced: true, group: is.records.elsewhere(r, bucket, false)}
	in.group[0].Last = stream.Seq(0)
	return in
}

// fresh reports whether the bucket of a record's time cannot have been closed since the record was
// born, except by a clock that was set in between: by the clock as it is now it is too soon for
// that. So a closed bucket was closed before, and no try can have stored the record there.
//
// The margin of half a settling time is for the difference between the clocks of the servers.
func (is *inserts) fresh(r *driver.Record) bool {
	now, margin := is.Now(), time.Duration(is.settle/2)*time.Microsecond
	return r.Born.Before(now.Add(margin)) && now.Add(margin).Before(is.closeAt(is.nearOf(r.Due)))
}

// guard makes the write of the record, the last one, conditional on its bucket being open.
func (in *inserting) guard(s *subjects) {
	w := &in.group[len(in.group)-1]
	w.Last, w.Guard = stream.Seq(0), s.markOf(w.Subject)
}

// repeat prepares the next try, which may make a copy: it is refused where the bucket is closed,
// since the first copy may have run by then.
//
// The first try has no such condition on several replicas, and may come after all others: it lies
// in a server that is frozen, until that goes on. So a note is stored with the copy; see
// isLateCopy. The note is a message more, but only for an Add whose answer was lost.
func (in *inserting) repeat(b *buckets) {
	if in.tried {
		return
	}
	in.tried = true
	in.guard(&b.subjects)
	if b.Replicas() > 1 {
		in.group = append(in.group, stream.Write{Subject: b.repeatedSubject(in.r.ID), Data: []byte("repeated"), Rollup: true, TTL: markTTL})
	}
}

// errTooLate leaves open whether an earlier try, or an earlier call, has stored the record: the
// messages that could tell are gone with their bucket.
var errTooLate = fmt.Errorf("%w: it came too late for its bucket", driver.ErrUncertain)
