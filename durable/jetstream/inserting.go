package jetstream

import (
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// inserts stores new jobs. Turns are locks of this process, each for the keys of some hashes, and taken in one order;
// they spare conflicts, and decide nothing: the conditions of the commits do.
type inserts struct {
	*keys
	records   *records
	admission *admission
	turns     [32]chan struct{} // of inserts that may replace a job, by the hash of their key
}

func newInserts(k *keys, r *records, a *admission) *inserts {
	is := &inserts{keys: k, records: r, admission: a}
	for i := range is.turns {
		is.turns[i] = make(chan struct{}, 1)
	}
	return is
}

// inserting is a record on its way.
type inserting struct {
	r         *driver.Record
	group     stream.Group
	displaced bool // it goes to another bucket than that of its time, with a forward
	tried     bool // an earlier try may have stored it
}

// insertion returns what stores a record for the first time. If the bucket of its time is
// below the watermark it goes to the first open one, as its second version, but only if it is
// fresh: otherwise it may have been stored, and run, before that bucket was closed.
func (is *inserts) insertion(r *driver.Record) *inserting {
	bucket := is.openFor(r.Due)
	if bucket == is.nearOf(r.Due) || !is.fresh(r) {
		return &inserting{r: r, group: stream.Group{is.records.recordWrite(r, nil, is.nearOf(r.Due), r.Born, false)}}
	}
	in := &inserting{r: r, displaced: true, group: is.records.elsewhere(r, bucket, false)}
	in.group[0].Last = stream.Seq(0)
	return in
}

// fresh reports whether the bucket of a record's time cannot have been closed since the
// record was born, but by a clock that was set in between: by the clock as it is now it is
// too soon for that. So if it is closed, it was so before.
func (is *inserts) fresh(r *driver.Record) bool {
	now, margin := is.Now(), time.Duration(is.settle/2)*time.Microsecond
	return r.Born.Before(now.Add(margin)) && now.Add(margin).Before(is.closeAt(is.nearOf(r.Due)))
}

// guard makes the write of the record, the last one, conditional on its bucket being open.
func (in *inserting) guard(s *subjects) {
	w := &in.group[len(in.group)-1]
	w.Last, w.Guard = stream.Seq(0), s.markOf(w.Subject)
}

// repeat prepares the next try, which may make a copy: it is refused where the bucket is closed. The first
// try has no such condition on several replicas, and may come after all others: it lies in a server that
// is frozen, until that goes on. So a note is stored with the copy; see isLateCopy.
func (in *inserting) repeat(b *buckets) {
	if in.tried {
		return
	}
	in.tried = true
	in.guard(&b.subjects)
	if b.Replicas > 1 {
		in.group = append(in.group, stream.Write{Subject: b.repeatedSubject(in.r.ID), Data: []byte("repeated"), Rollup: true, TTL: markTTL})
	}
}

var errTooLate = fmt.Errorf("%w: it came too late for its bucket", driver.ErrUncertain)
