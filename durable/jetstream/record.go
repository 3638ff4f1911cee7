package jetstream

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// records composes the messages that store a version of a job, and lead to it: where it goes, how
// large it may be, and on which condition it is stored. It has no state, reads nothing but the
// watermark and the fleet, and writes nothing.
type records struct {
	*buckets
	queues *queues
}

// recordWrite is the message that stores a version of a job. Was is that of the version before, nil for
// the first. It goes to the coarser level if that is not moved yet; a version that was deferred to the
// first open bucket does not, since it may be due at once.
//
// On a stream of one replica it is refused once the bucket is closed, so that a late copy does not come
// back to life when nobody remembers that it ran. On several replicas such a condition makes writers
// wait for one another, so only a write that may be a copy has it; a late one is found by the scan for
// old buckets.
func (rs *records) recordWrite(r *driver.Record, was []byte, bucket int64, now time.Time, guarded bool) stream.Write {
	far := bucket == rs.nearOf(r.Due) && rs.farOf(bucket) > rs.lowest().far && rs.isFar(bucket, now)
	w := stream.Write{Subject: rs.queues.nearSubject(bucket, r.Kind), Data: rs.encodeFitting(r, was)}
	if far {
		w.Subject = rs.farSubject(rs.farOf(bucket))
	}
	if guarded || rs.Replicas() == 1 {
		w.Last, w.Guard = stream.Seq(0), rs.jobMark(bucket, far)
	}
	return w
}

// elsewhere returns what stores a new job in another bucket than that of its time: as a
// second version, to which a forward leads.
func (rs *records) elsewhere(r *driver.Record, bucket int64, guarded bool) stream.Group {
	next := *r
	next.Version = 1
	return stream.Group{rs.forwardWrite(&next, bucket), rs.recordWrite(&next, nil, bucket, r.Born, guarded)}
}

// endedWrite is the message that keeps a job which has ended: a dead one, or one with a Retain.
func (rs *records) endedWrite(r *driver.Record, was []byte, ttl time.Duration) stream.Write {
	return stream.Write{Subject: rs.deadSubject(r.ID), Data: rs.encodeFitting(r, was), Rollup: true, TTL: ttl}
}

// forwardWrite leads from a job's Ref to its newest version. It has no condition of its own where the
// status of the version before is in the same commit: of two moves that is what lets one win.
func (rs *records) forwardWrite(r *driver.Record, bucket int64) stream.Write {
	return stream.Write{Subject: rs.forward(r.ID), Data: fmt.Appendf(nil, "%d %d", bucket, r.Version), Rollup: true}
}

// moveGroup ends a version as moved, and stores the next; was is its message. The next version of a
// suspect that was handed back is a suspect, too. It is stored on the condition that the
// status is as it was read, and if there was none, the bucket of the old version is open,
// so that what has ended does not come back. A status that is there says as much, in a
// closed bucket too: it is removed after its job.
func (rs *records) moveGroup(r *driver.Record, was []byte, at location, s status, token string, to, now time.Time) stream.Group {
	next := *r
	next.Due, next.Version = to, r.Version+1
	return rs.versionGroup(&next, was, at, s, token, rs.openFor(to), now)
}

// versionGroup is moveGroup of a version that is to be stored in a bucket.
func (rs *records) versionGroup(next *driver.Record, was []byte, at location, s status, token string, bucket int64, now time.Time) stream.Group {
	if s.fate == freed {
		next.Attempt, next.Crashes = s.attempt, s.crashes
	}
	end := status{fate: moved, token: token, bucket: bucket, attempt: s.attempt}
	forward := rs.forwardWrite(next, bucket)
	if s.seq == 0 {
		forward.Last, forward.Guard = stream.Seq(0), rs.nearMark(at.bucket)
	}
	g := stream.Group{
		{Subject: rs.statusSubject(at), Data: end.encode(), Last: stream.Seq(s.seq)},
		forward,
		rs.recordWrite(next, was, bucket, now, true),
	}
	return append(g, rs.leave(s)...)
}

// statusLast has the status, with which an end begins, stored after what follows from it. Where a
// batch meets the limit in its middle the claim is there still, and the end is written once more.
func statusLast(end stream.Group) stream.Group { return append(slices.Clone(end[1:]), end[0]) }

// checkRecord returns an error if a record is too large to be added. Most records are so small that their
// payload alone tells, and only the others are encoded for it.
func (rs *records) checkRecord(r *driver.Record) error {
	most := rs.mostRecord()
	if len(r.Payload)+6*len(r.Occurrence)+mostHead <= most {
		return nil
	}
	return stream.TooLarge("the job", len(encode(r, nil)), most)
}

// mostRecord is how large a record may be that is added.
func (rs *records) mostRecord() int {
	return rs.Conn.MaxPayload() - 2*stream.HeadersSize - stream.Growth
}

// mostHead is more than a record has beside its payload and its occurrence, as JSON, which may need
// six bytes for one.
const mostHead = 6*(driver.MaxKind+driver.MaxKey+driver.MaxLane+driver.MaxMeta) + stream.Growth

// encodeFitting is encode, of a record that has been tried. If it grew too large, the errors of its
// attempts are cut, the oldest first. A job that was stored once must not get stuck because its end
// cannot be: an error that is cut costs less than that.
func (rs *records) encodeFitting(r *driver.Record, was []byte) []byte {
	data := encode(r, was)
	if most := rs.mostRecord() + stream.Growth/2; len(data) > most {
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
