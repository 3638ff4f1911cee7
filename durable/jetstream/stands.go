package jetstream

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// An answer that writes nothing, such as ErrExists or a false of Cancel, rests on what was read. A
// leader that was deposed and does not know it reads old messages. So before the answer is given a
// witness is written, which only a leader with a majority can commit, and the reading is compared
// with that of a server which has the witness. With one replica nothing is old.

// reading is subjects, and the sequence of the last message of each; 0 for none or a tombstone. A
// tombstone counts as none, since it goes by itself after a minute.
type reading map[string]uint64

// readingOf is what a holder was read from. The mark of its bucket counts if the job has no status:
// an open bucket is what says that it waits.
func (ks *keys) readingOf(h *holder) reading {
	r := reading{}
	if h.key != "" {
		r[ks.keySubject(h.key)] = h.seq
	}
	if h.job.id != "" {
		r[ks.forward(h.job.id)], r[ks.statusSubject(h.at)] = h.forward, h.s.seq
		if h.alive && h.s.seq == 0 {
			r[ks.nearMark(h.at.bucket)] = 0 // it is open
		}
	}
	return r
}

// stands returns nil if a reading is what is stored, by a time after the call: stream.ErrBusy if
// not, or if nobody has answered yet. It costs the commit of a witness and one read, and nothing on
// one replica. The witness comes from a function, so that all keys of a step of an insert share
// one.
//
// An answer can only say that it stood at one moment between the call and the answer. A caller that
// gets ErrBusy reads again, and answers by the new reading.
func (b *buckets) stands(ctx context.Context, r reading, testify func(context.Context) (stream.Witness, error)) error {
	if b.Replicas() == 1 {
		return nil
	}
	w, err := testify(ctx)
	var found map[string]stream.Message
	if err == nil {
		found, err = b.LastsSince(ctx, w, false, slices.Collect(maps.Keys(r))...)
	}
	unanswered := stream.IsLost(err) || errors.Is(err, stream.ErrBehind) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case unanswered && ctx.Err() == nil && b.Conn.Ended.Err() == nil:
		return stream.ErrBusy // a leader may answer soon
	case err != nil:
		return err
	}
	for subject, n := range r {
		if m := found[subject]; m.Seq != n && (n > 0 || len(m.Data) > 0) {
			return stream.ErrBusy
		}
	}
	return nil
}

// testify writes a witness. Each engine has a subject of its own, and its last witness replaces the
// one before, so that any number of them leaves one message, which goes after a while.
func (b *buckets) testify(ctx context.Context) (stream.Witness, error) {
	subject := b.subject("y." + b.nonce)
	n, err := b.WriteSeq(ctx, stream.Write{Subject: subject, Rollup: true, TTL: graveTTL})
	return stream.Witness{Subject: subject, Seq: n}, err
}

// ifStands returns done and an answer without a write for a try of retry, if what it rests on is stored so.
func (b *buckets) ifStands(ctx context.Context, r reading, answer error) (done bool, err error) {
	if err := b.stands(ctx, r, b.testify); err != nil {
		return !errors.Is(err, stream.ErrBusy), err
	}
	return true, answer
}
