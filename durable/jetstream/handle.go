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

// handle is what the engine has to know of a job that it has handed out. No lock guards it: the Queue passes a Delivery
// to one call of the Worker at a time. What overlaps with calls, such as the comparison of claims, knows it by its number
// only (claims in reconcile.go).
type handle struct {
	p      *buckets
	at     location
	acks   string    // where the message is acknowledged
	since  time.Time // when it was handed out
	steps  int64     // of the clock before that
	again  bool      // not for the first time, so that it may have ended long ago
	seq    uint64    // of the message
	backs  int64     // how often its stream had gone back
	record *driver.Record
	data   []byte // the message that record was read from
	number uint64 // among all handles of this process, once it was to be claimed
	status status // of the claim, or of what was to be one: then its sequence is 0
	of     int64  // how often the stream had gone back before status was written
	ending string // the token of its end, however often that is written; "" before
	unsure bool   // the answer to a claim was lost, and its status is not read yet
}

var handles atomic.Uint64

// token is that of a claim in a call. It names the handle: one worker may be handed a job once
// more while it gives back what it has dropped, and the claim of the one is not the other's.
func (h *handle) token(call string) string {
	if h.number == 0 {
		h.number = handles.Add(1)
	}
	return call + "." + strconv.FormatUint(h.number, 36)
}

// staleAge is the age from which the mark of a bucket does not say any more whether what
// was handed out of it may be claimed: the bucket may have been closed, and the mark be
// gone by now. It is much less than what a mark lasts.
const staleAge = time.Hour

// stale reports whether a job was handed out so long ago, by this machine's clocks: one
// stands still while the machine is suspended, and the other may be set. When the
// server's clock was set forward since, marks may be gone as well.
func (h *handle) stale() bool {
	now := time.Now()
	age := max(now.Sub(h.since), now.Round(0).Sub(h.since.Round(0)))
	return age > h.p.staleAge || h.steps != h.p.Clock.Step().Count
}

func (h *handle) ack() { h.answer("+ACK") }

// nak has the consumer hand the job out again, after a while.
func (h *handle) nak(after time.Duration) {
	if after > 0 {
		h.answer(fmt.Sprintf(`-NAK {"delay": %d}`, after.Nanoseconds()))
		return
	}
	h.answer("-NAK")
}

// answer tells the consumer, without waiting: if it is lost the job is handed out again. In a stream that
// went back since, the sequence may be another job's.
func (h *handle) answer(s string) {
	if h.acks != "" && h.backs == h.p.Backs() {
		h.p.Conn.Post(h.acks, []byte(s))
	}
}

// largeJob is from which size on a job that has ended is removed by itself from a full store. Others
// go as far as all before them have ended, and that may need the room of this one.
const largeJob = 4 << 10

// leaveFull removes the message of a job whose end is stored.
func (h *handle) leaveFull(ctx context.Context) {
	if len(h.data) >= largeJob && h.backs == h.p.Backs() {
		h.p.Remove(ctx, stream.Message{Seq: h.seq})
	}
}

// deliveryOf makes a Delivery of a message of a near bucket.
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

// heldLong is from when on it is of use to ask whether what is held has ended.
const heldLong = time.Second

// statusesOf looks up what became of jobs. It may miss what is new; what is final stays so.
func (b *buckets) statusesOf(ctx context.Context, held []*driver.Delivery) []status {
	statuses := make([]status, len(held))
	subjects := make([]string, len(held))
	for i, h := range held {
		subjects[i] = b.fateSubject(h.Claim.(*handle).at)
	}
	found, err := b.Lasts(ctx, subjects)
	if err != nil {
		return statuses // the claim will tell
	}
	for i, subject := range subjects {
		m, ok := found[subject]
		if !ok {
			continue
		}
		if s, err := decodeStatus(m.Data, m.Seq); err == nil {
			statuses[i] = s
		}
	}
	return statuses
}

// statusesAmong is statusesOf for those that are not handed out for the first time, or that
// were long ago. A job that waits for a limit waits long, and may have come to another worker, too,
// since.
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

// stillOpen looks for the mark of a job's bucket, as of when the job was claimed.
func (b *buckets) stillOpen(ctx context.Context, hd *handle) error {
	claim := stream.Witness{Subject: b.fateSubject(hd.at), Seq: hd.status.seq}
	mark, err := b.LastSince(ctx, claim, b.nearMark(hd.at.bucket), true)
	if err == nil && mark.Seq > 0 {
		return errBucketClosed
	}
	return err
}

// reopened reports whether a job waits in a bucket that is, or may be, closed: its own
// message is there. It came there after the closing, as only the first try of an insert
// can, on a stream of several replicas, or the bucket is not closed. If another try had stored
// the job before the closing, it does not wait in the late one. A message that was removed once does not
// wait, either, though it is there again. The leader is asked:
// another server may be a moment behind, and still have a message of before the closing,
// or not have the late one yet. Without an answer nobody knows: a job that is taken for
// gone would be lost.
//
// A leader that was deposed and does not know may have what is gone, or not have what is
// there. So it is asked before and after whether it knows of the claim.
func (b *buckets) reopened(ctx context.Context, hd *handle, mark string) (bool, error) {
	claim := stream.Witness{Subject: b.fateSubject(hd.at), Seq: hd.status.seq}
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
	removed, err := b.wasRemoved(ctx, hd.seq, mark)
	if err != nil {
		return false, err
	}
	return m.Seq > 0 && !late && !removed, b.Knows(ctx, claim)
}

// isLateCopy reports whether a message is that of a first try that came after its bucket was closed, though
// another try had stored the job there before. Then the job is in that copy, or has ended. The mark is
// that of the bucket where the message is. Only first tries enter a bucket that is marked.
func (b *buckets) isLateCopy(ctx context.Context, hd *handle, mark string) (bool, error) {
	note, err := b.Last(ctx, b.repeatedSubject(hd.at.id))
	if err != nil || note.Seq == 0 {
		return false, err
	}
	closed, err := b.Last(ctx, mark)
	return note.Seq < closed.Seq && closed.Seq < hd.seq, err
}

// claimTries is how often a claim, or the end of a job that has left its key, is made anew while others write the same.
const claimTries = 6

// refresh reads the statuses of claims that were written before the stream went back, and returns ErrLeaseLost of those
// that it has no more: another message may have the sequence.
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
