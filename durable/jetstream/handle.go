package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// handle is what the engine has to know of a job that it has handed out. No lock guards it: the
// Queue passes a Delivery to one call of the Worker at a time. The comparison of claims overlaps
// with such calls. So it knows a handle by its number only (claims in reconcile.go).
//
// A handle is memory of this process alone. A job that is handed out again has another handle, and
// the status in the stream tells which of the two has the claim.
type handle struct {
	// The delivery. It is fixed from deliveryOf on.
	p      *buckets
	at     location
	acks   string    // Where the message is acknowledged; "" if it is not.
	since  time.Time // When it was handed out.
	steps  int64     // Of the clock before that.
	again  bool      // Not for the first time, so that it may have ended long ago.
	seq    uint64    // Of the message.
	backs  int64     // How often its stream had gone back when the message came.
	record *driver.Record
	data   []byte // The message that record was read from.

	// The claim. The sequence of its status means nothing any more once the stream went back again,
	// after of.
	number uint64 // Among all handles of this process, once it was to be claimed.
	status status // Of the claim, or of one that was tried: then its sequence is 0.
	of     int64  // How often the stream had gone back before status was written.
	ending string // The token of its end, however often that is written; "" before.
	unsure bool   // The answer to a claim was lost, and its status is not read yet.
}

var handles atomic.Uint64

// token is that of a claim in a call. It names the handle: one worker may be handed a job once more
// while it gives back what it has dropped, and the claim of the one is not the other's.
//
// The call tells two tries of one handle apart. The number alone is enough for the comparison of
// claims.
func (h *handle) token(call string) string {
	if h.number == 0 {
		h.number = handles.Add(1)
	}
	return call + "." + strconv.FormatUint(h.number, 36)
}

// staleAge is the age from which the mark of a bucket does not say any more whether a job that was
// handed out of it may be claimed: the bucket may have been closed, and the mark be gone by now. It
// is much less than markTTL, for which a mark lasts.
const staleAge = time.Hour

// stale reports whether a job was handed out so long ago, by this machine's clocks: one stands
// still while the machine is suspended, and the other may be set, so the larger age counts. When
// the server's clock was set forward since, marks may be gone as well.
//
// A false alarm costs some reads at the claim (reopened), and no job.
func (h *handle) stale() bool {
	now := time.Now()
	age := max(now.Sub(h.since), now.Round(0).Sub(h.since.Round(0)))
	return age > h.p.staleAge || h.steps != h.p.Clock.Step().Count
}

// ack is for a job that has ended, or is stored elsewhere, and only after that was committed. A
// bucket closes when all of it is acknowledged, so an early ack would lose the job.
func (h *handle) ack() { h.answer("+ACK") }

// nak makes the consumer hand the job out again, after a while, to whichever worker asks first.
func (h *handle) nak(after time.Duration) {
	if after > 0 {
		h.answer(fmt.Sprintf(`-NAK {"delay": %d}`, after.Nanoseconds()))
		return
	}
	h.answer("-NAK")
}

// answer does not wait: if it is lost, the job is handed out again after a lease, and its status
// tells. It sends nothing to a stream that went back since, where the sequence may be another
// job's.
func (h *handle) answer(s string) {
	if h.acks != "" && h.backs == h.p.Backs() {
		h.p.Conn.Post(h.acks, []byte(s))
	}
}

// largeJob is from which size on a job that has ended is removed by itself from a full store.
// Others go when all before them have ended, and those ends may need the room of this one. A
// removal is a request, so a small job is not worth it.
const largeJob = 4 << 10

// leaveFull removes the message of a job whose end is stored. If it fails, the bucket's removal
// does it.
func (h *handle) leaveFull(ctx context.Context) {
	if len(h.data) >= largeJob && h.backs == h.p.Backs() {
		h.p.Remove(ctx, h.backs, stream.Message{Seq: h.seq})
	}
}

// deliveryOf makes a Delivery of a message of a near bucket. An error is that of a message that is
// not a job, or is damaged: it stays where it is, and keeps its bucket open.
func (b *buckets) deliveryOf(m *nats.Msg) (*driver.Delivery, error) {
	r, err := decode(m.Data)
	if err != nil {
		return nil, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return nil, err
	}
	d := &driver.Delivery{Ref: b.refOf(&r), Record: r}
	d.Claim = &handle{
		p: b, at: b.locationOf(m.Subject, &r), acks: m.Reply, since: time.Now(), steps: b.Clock.Step().Count,
		again: meta.NumDelivered > 1, seq: meta.Sequence.Stream, backs: b.Backs(), record: &d.Record, data: m.Data,
	}
	return d, nil
}

// heldLong is from when on it is of use to ask whether a held job has ended: sooner, most have not,
// and the claim itself finds the few.
const heldLong = time.Second

// statusesOf looks up what became of jobs, in one request for some hundreds. Any server may answer,
// so it may miss a new status; a final one stays so. The zero status is that of a job of which
// nothing is known: then the condition of the claim tells, also where no server has answered.
func (b *buckets) statusesOf(ctx context.Context, held []*driver.Delivery) []status {
	statuses := make([]status, len(held))
	subjects := make([]string, len(held))
	for i, h := range held {
		subjects[i] = b.statusSubject(h.Claim.(*handle).at)
	}
	found, _ := b.Lasts(ctx, subjects)
	for i, subject := range subjects {
		if m, ok := found[subject]; ok {
			if s, err := decodeStatus(m.Data, m.Seq); err == nil {
				statuses[i] = s
			}
		}
	}
	return statuses
}

// statusesAmong is statusesOf for those that are not handed out for the first time, or that were
// long ago. A job that waits for a limit waits long, and may have come to another worker, too,
// since.
//
// A plain job that comes for the first time is not among them, and costs no read: nearly all of
// these wait.
func (b *buckets) statusesAmong(ctx context.Context, held []*driver.Delivery) []status {
	statuses := make([]status, len(held))
	var again []int
	for i, h := range held {
		if hd := h.Claim.(*handle); hd.again || h.Exact && time.Since(hd.since) > heldLong {
			again = append(again, i)
		}
	}
	for k, s := range b.statusesOf(ctx, pick(held, again)) {
		statuses[again[k]] = s
	}
	return statuses
}

var errBucketClosed = errors.New("jetstream: the bucket is closed")

// stillOpen looks for the mark of a job's bucket, as of when the job was claimed: an older reading
// might miss a mark that was there before the claim. The jobs of a bucket that are claimed in one
// commit share it.
func (b *buckets) stillOpen(ctx context.Context, hd *handle) error {
	claim := stream.Witness{Subject: b.statusSubject(hd.at), Seq: hd.status.seq}
	mark, err := b.LastSince(ctx, claim, b.nearMark(hd.at.bucket), true)
	if err == nil && mark.Seq > 0 {
		return errBucketClosed
	}
	return err
}

// reopened reports whether a job waits in a bucket that is, or may be, closed: its own message is
// there. It came there after the closing, as only the first try of an insert can, on a stream of
// several replicas, or the bucket is not closed.
//
// If another try had stored the job before the closing, it does not wait in the late one. A message
// that was removed once does not wait, either, though it is there again.
//
// The leader answers: another server may be a moment behind, and still have a message of before the
// closing, or not have the late one yet. Without an answer nobody knows: a job that is taken for
// gone would be lost.
//
// A leader that was deposed and does not know may have messages that are gone, or lack some that
// are there. So the first and the last question are whether it knows of the claim. These are five
// requests, one after the other, and more on some ways; only claims of stale handles and in closed
// buckets pay for them.
func (b *buckets) reopened(ctx context.Context, hd *handle, mark string) (bool, error) {
	claim := stream.Witness{Subject: b.statusSubject(hd.at), Seq: hd.status.seq}
	if err := b.Knows(ctx, claim); err != nil {
		return false, err
	}
	m, err := b.OfLeader(ctx, map[string]any{"seq": hd.seq})
	if err != nil {
		return false, err
	}
	late, err := b.isLateCopy(ctx, hd, mark)
	if err != nil {
		return false, err
	}
	removed, err := b.wasRemoved(ctx, hd.seq, hd.at.bucket)
	if err != nil {
		return false, err
	}
	return m.Seq > 0 && !late && !removed, b.Knows(ctx, claim)
}

// isLateCopy reports whether a message is that of a first try that came after its bucket was
// closed, though another try had stored the job there before. Then the job is in that copy, or has
// ended. The mark is that of the bucket where the message is. Only first tries enter a bucket that
// is marked.
//
// The note is written with the copy (repeat). So the order of the three sequences tells: the copy,
// the mark, the late message.
func (b *buckets) isLateCopy(ctx context.Context, hd *handle, mark string) (bool, error) {
	note, err := b.Last(ctx, b.repeatedSubject(hd.at.id))
	if err != nil || note.Seq == 0 {
		return false, err
	}
	closed, err := b.Last(ctx, mark)
	return note.Seq < closed.Seq && closed.Seq < hd.seq, err
}

// claimTries is how often a claim, or the end of a job that has left its key, is made anew while
// others write the same.
const claimTries = 6

// refresh reads the statuses of claims that were written before the stream went back, and returns
// ErrLeaseLost of those that it has no more: another message may have the sequence, and an end
// would replace that.
//
// It costs nothing as long as the stream did not go back, and then one read for each claim.
func (fi *finder) refresh(ctx context.Context, outs []driver.Completion) []error {
	errs, backs := make([]error, len(outs)), fi.Backs()
	for i := range outs {
		hd := outs[i].Delivery.Claim.(*handle)
		if hd.of == backs {
			continue
		}
		s, err := fi.status(ctx, hd.at)
		if err == nil && s.token != hd.status.token && s.token != hd.ending {
			err = driver.ErrLeaseLost
		}
		if errs[i] = err; err == nil {
			hd.status.seq, hd.of = s.seq, backs
		}
	}
	return errs
}

func pick[T any](s []T, indices []int) []T {
	picked := make([]T, len(indices))
	for k, i := range indices {
		picked[k] = s[i]
	}
	return picked
}
