package jetstream

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// records composes the messages that store a version of a job, and lead to it: where it goes, how large it may be, and
// on which condition it is stored. It has no state, reads nothing but the watermark and the fleet, and writes nothing.
type records struct {
	*buckets
	queues *queues
}

// recordWrite is the message that stores a version of a job. Was is that of the version
// before, nil for the first. On a stream of one replica
// it is refused once the bucket is closed, so that a late copy does not come back to life
// when nobody remembers that it ran. On several replicas such a condition would have
// writers wait for one another, so only what may be a copy has it; what comes late is
// found by the scan for old buckets.
func (rs *records) recordWrite(r *driver.Record, was []byte, bucket int64, now time.Time, guarded bool) write {
	far := rs.toFar(bucket, r.Due, now)
	w := write{subject: rs.queues.nearSubject(bucket, r.Kind), data: rs.encodeFitting(r, was)}
	if far {
		w.subject = rs.farSubject(rs.farOf(bucket))
	}
	if guarded || rs.replicas == 1 {
		w.last, w.guard = seq(0), rs.jobMark(bucket, far)
	}
	return w
}

// elsewhere returns what stores a new job in another bucket than that of its time: as a
// second version, to which a forward leads.
func (rs *records) elsewhere(r *driver.Record, bucket int64, guarded bool) group {
	next := *r
	next.Version = 1
	return group{rs.forwardWrite(&next, bucket), rs.recordWrite(&next, nil, bucket, r.Born, guarded)}
}

// endedWrite is the message that keeps a job which has ended: a dead one, or one with a Retain.
func (rs *records) endedWrite(r *driver.Record, was []byte, ttl time.Duration) write {
	return write{subject: rs.deadSubject(r.ID), data: rs.encodeFitting(r, was), rollup: true, ttl: ttl}
}

func (rs *records) forwardWrite(r *driver.Record, bucket int64) write {
	return write{subject: rs.forward(r.ID), data: fmt.Appendf(nil, "%d %d", bucket, r.Version), rollup: true}
}

// moveGroup ends a version as moved, and stores the next; was is its message. The next version of a
// suspect that was handed back is a suspect, too. It is stored on the condition that the
// status is as it was read, and if there was none, the bucket of the old version is open,
// so that what has ended does not come back. A status that is there says as much, in a
// closed bucket too: it is removed after its job.
func (rs *records) moveGroup(r *driver.Record, was []byte, at location, s status, token string, to, now time.Time) group {
	next := *r
	next.Due, next.Version = to, r.Version+1
	return rs.versionGroup(&next, was, at, s, token, rs.openFor(to), now)
}

// versionGroup is moveGroup of a version that is to be stored in a bucket.
func (rs *records) versionGroup(next *driver.Record, was []byte, at location, s status, token string, bucket int64, now time.Time) group {
	if s.fate == freed {
		next.Attempt, next.Crashes = s.attempt, s.crashes
	}
	end := status{fate: moved, token: token, bucket: bucket, attempt: s.attempt}
	forward := rs.forwardWrite(next, bucket)
	if s.seq == 0 {
		forward.last, forward.guard = seq(0), rs.nearMark(at.bucket)
	}
	g := group{
		{subject: rs.fateSubject(at), data: end.encode(), last: seq(s.seq)},
		forward,
		rs.recordWrite(next, was, bucket, now, true),
	}
	return append(g, rs.leave(s)...)
}

// statusLast has the status, with which an end begins, stored after what follows from it. Where a
// batch meets the limit in its middle the claim is there still, and the end is written once more.
func statusLast(end group) group { return append(slices.Clone(end[1:]), end[0]) }

// checkRecord returns an error if a record is too large to be added.
func (rs *records) checkRecord(r *driver.Record) error {
	most := rs.mostRecord()
	if len(r.Payload)+6*len(r.Occurrence)+mostHead <= most {
		return nil
	}
	return tooLarge("the job", len(encode(r, nil)), most)
}

// mostRecord is how large a record may be that is added.
func (rs *records) mostRecord() int { return rs.nc.maxPayload() - 2*headersSize - growth }

// mostHead is more than a record has beside its payload and its occurrence, as JSON, which may need
// six bytes for one.
const mostHead = 6*(driver.MaxKind+driver.MaxKey+driver.MaxLane+driver.MaxMeta) + growth

// encodeFitting is encode, of a record that has been tried. If it grew too large, the errors of its
// attempts are cut, the oldest first.
func (rs *records) encodeFitting(r *driver.Record, was []byte) []byte {
	data := encode(r, was)
	if most := rs.mostRecord() + growth/2; len(data) > most {
		fitting := *r
		for len(data) > most && cutErrors(&fitting) {
			data = encode(&fitting, was)
		}
	}
	return data
}

// cutErrors makes a record smaller, and reports whether it could.
func cutErrors(r *driver.Record) bool {
	switch n := len(r.Errors); {
	case n > 1:
		r.Errors = r.Errors[n-n/2:]
	case n == 1 && r.Errors[0].Error != "":
		last := r.Errors[0]
		last.Error = half(last.Error)
		r.Errors, r.LastError = []driver.Failure{last}, half(r.LastError)
	case r.LastError != "":
		r.LastError = half(r.LastError)
	case n == 1:
		r.Errors = nil
	default:
		return false
	}
	return true
}

func half(s string) string { return strings.ToValidUTF8(s[:len(s)/2], "") }

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
	group     group
	displaced bool // it goes to another bucket than that of its time, with a forward
	tried     bool // an earlier try may have stored it
}

// insertion returns what stores a record for the first time. If the bucket of its time is
// below the watermark it goes to the first open one, as its second version, but only if it is
// fresh: otherwise it may have been stored, and run, before that bucket was closed.
func (is *inserts) insertion(r *driver.Record) *inserting {
	bucket := is.openFor(r.Due)
	if bucket == is.nearOf(r.Due) || !is.fresh(r) {
		return &inserting{r: r, group: group{is.records.recordWrite(r, nil, is.nearOf(r.Due), r.Born, false)}}
	}
	in := &inserting{r: r, displaced: true, group: is.records.elsewhere(r, bucket, false)}
	in.group[0].last = seq(0)
	return in
}

// fresh reports whether the bucket of a record's time cannot have been closed since the
// record was born, but by a clock that was set in between: by the clock as it is now it is
// too soon for that. So if it is closed, it was so before.
func (is *inserts) fresh(r *driver.Record) bool {
	now, margin := is.now(), time.Duration(is.settle/2)*time.Microsecond
	return r.Born.Before(now.Add(margin)) && now.Add(margin).Before(is.closeAt(is.nearOf(r.Due)))
}

// guard makes the write of the record, the last one, conditional on its bucket being open.
func (in *inserting) guard(s *subjects) {
	w := &in.group[len(in.group)-1]
	w.last, w.guard = seq(0), s.markOf(w.subject)
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
	if b.replicas > 1 {
		in.group = append(in.group, write{subject: b.repeatedSubject(in.r.ID), data: []byte("repeated"), rollup: true, ttl: markTTL})
	}
}

var errTooLate = fmt.Errorf("%w: it came too late for its bucket", driver.ErrUncertain)
