package stream

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/internal/stack"
)

// A write is waited for twice as long as a question: a caller that gives up does not know what was
// stored, and has to find out. The server refuses a batch of more than MaxWrites; the other bound
// is this package's, so that one commit does not delay those of others by much.
const (
	MaxWrites     = 1000             // of an atomic batch: the server's limit
	maxWriteBytes = 4 << 20          // of an atomic batch
	commitTimeout = 10 * time.Second // of a write; longer than an election
)

// A server takes no message, headers and all, that is larger than its max_payload, and the client
// refuses to send one. So a group that does not fit is refused by itself, and not with all that it
// shares a commit with.
const (
	LeastMaxPayload = 16 << 10 // heartbeats, statuses and permits fit
	HeadersSize     = 320      // of a message, without its guard
	Growth          = 1 << 10  // is free when a job is added: for its version, its attempts, a line of its error
)

// Result is what became of a group. With an error nothing of it is stored, unless that is
// durable.ErrUncertain, or ErrFull of a server that is alone.
type Result struct {
	First uint64 // the sequence of its first message; those of a batch follow one another; 0 with an error
	Err   error
}

// Write commits one group. A caller that needs its sequence calls WriteSeq; one that has several calls
// Commit once, and not Write for each.
func (s *Stream) Write(ctx context.Context, g ...Write) error {
	return s.Commit(ctx, []Group{g})[0].Err
}

// WriteSeq is write, and returns the sequence of the first message.
func (s *Stream) WriteSeq(ctx context.Context, g ...Write) (uint64, error) {
	res := s.Commit(ctx, []Group{g})[0]
	return res.First, res.Err
}

// Commit writes groups, as many as possible in one commit, and returns what became of
// each: nil; ErrConflict, if a condition does not hold; durable.ErrUncertain, if its answer was lost;
// ErrFull; ErrInvalid, if it is too large; or another error, and then it was not written. When
// something is wrong with one group the batch is refused as a whole, and is tried again in halves.
//
// The groups of one call must not depend on one another: one may be stored without the next. Two
// that write one subject cost a conflict: the server may refuse a batch with both, and they part in
// its halves. Commit repeats no group whose answer was lost. The caller finds out what became of
// it, and knows how to recognize it.
func (s *Stream) Commit(ctx context.Context, groups []Group) []Result {
	results, backs := make([]Result, len(groups)), s.Backs()
	for from := 0; from < len(groups); {
		if results[from].Err = s.checkSize(groups[from]); results[from].Err != nil {
			from++
			continue
		}
		to, writes, bytes := from, 0, 0
		fits := func(g Group) bool {
			return writes+len(g) <= MaxWrites && bytes+g.size() <= maxWriteBytes && s.checkSize(g) == nil
		}
		for to < len(groups) && (to == from || fits(groups[to])) {
			writes += len(groups[to])
			bytes += groups[to].size()
			to++
		}
		s.commitBatch(ctx, backs, groups[from:to], results[from:to])
		from = to
	}
	return results
}

// FewWrites is up to how many single messages are quicker than an atomic batch of them,
// for which the server makes a file store of its own: that takes as long as some ten
// syncs.
const FewWrites = 12

// commitBatch commits groups that fit into one batch. The server names no culprit when it refuses a
// batch. So a conflict of one group among n costs about 2 log n batches, and the others are stored;
// to send each group by itself would cost n commits. An error that says nothing about one group, or
// leaves open what was stored, is that of all.
//
// A few groups of one message each are sent by themselves, all at once. No result of theirs is
// about another one, so there are no halves. In a stream that went back no condition holds, and
// halves of the batch would be refused, too.
func (s *Stream) commitBatch(ctx context.Context, backs int64, groups []Group, results []Result) {
	if n := len(groups); n > 1 && n <= FewWrites && !slices.ContainsFunc(groups, func(g Group) bool { return len(g) > 1 }) {
		var wg sync.WaitGroup
		for i := range groups {
			wg.Go(func() { stack.Grow(); s.commitBatch(ctx, backs, groups[i:i+1], results[i:i+1]) })
		}
		wg.Wait()
		return
	}
	err := s.commitAtOnce(ctx, backs, groups, results)
	if len(groups) > 1 && (errors.Is(err, ErrConflict) || errors.Is(err, ErrBusy)) && !errors.Is(err, ErrWentBack) {
		half := len(groups) / 2
		s.commitBatch(ctx, backs, groups[:half], results[:half])
		s.commitBatch(ctx, backs, groups[half:], results[half:])
	}
}

// CommitAtOnce is Commit of all groups or none, which fit into one batch. It is for a caller that
// expects several to be refused, and finds out which in one read: halves would cost more than that.
func (s *Stream) CommitAtOnce(ctx context.Context, groups []Group) []Result {
	results := make([]Result, len(groups))
	_ = s.commitAtOnce(ctx, s.Backs(), groups, results)
	return results
}

// commitAtOnce writes all groups or none. Backs is of when the commit began, as the conditions of
// the groups are: that the stream went back may be found on the way, such as by the question for
// the version.
//
// The answer has the sequence of the last message, and those of a batch follow one another. So the
// results are counted from there, backward.
func (s *Stream) commitAtOnce(ctx context.Context, backs int64, groups []Group, results []Result) error {
	last, err := s.publishPatiently(ctx, backs, groups)
	next := last + 1
	for i, g := range slices.Backward(groups) {
		if results[i].Err = err; err == nil {
			next -= uint64(len(g))
			results[i].First = next
		}
	}
	return err
}

// publishPatiently publishes, again after a while if the server was busy with the same
// subjects, or has no leader: then nothing was written.
//
// Busy subjects are tried five times in all, within some 30 ms. Without a leader it tries until ctx
// or the engine ends, five times a second at last. Room is made once, and a single group is
// repeated then. Several are not: a server that is alone may have stored a part of them.
func (s *Stream) publishPatiently(ctx context.Context, backs int64, groups []Group) (last uint64, err error) {
	ctx, stop := s.Denials.During(ctx, func(denied string) bool {
		return slices.ContainsFunc(groups, func(g Group) bool {
			return slices.ContainsFunc(g, func(w Write) bool { return w.Subject == denied })
		})
	})
	defer stop()
	for try, room, pause := 0, false, 2*time.Millisecond; ; try, pause = try+1, min(2*pause, 200*time.Millisecond) {
		if s.Conn.Ended.Err() != nil {
			return 0, s.ClosedBy()
		}
		if err := s.checkVersion(ctx); err != nil {
			return 0, err
		}
		last, err = s.publish(ctx, backs, groups)
		err = deniedWrite(ctx, err)
		if errors.Is(err, driver.ErrFull) && !room && s.Room(ctx) && len(groups) == 1 {
			room = true
			continue
		}
		busy := errors.Is(err, ErrBusy) && try < 4
		if !busy && !errors.Is(err, nats.ErrNoResponders) {
			return last, err
		}
		if s.Wait(ctx, pause); ctx.Err() != nil {
			return 0, deniedWrite(ctx, err) // of a batch the server may call incomplete what it has denied a part of
		}
	}
}

// publish writes all that is in the groups, or nothing: one message by itself, several as
// an atomic batch. Only the last message of a batch is answered.
//
// The past is looked at right before the messages are sent, and the moment that the answer is
// compared with is of after that. Once something was sent, an error is certain in three cases:
// nobody has the subject, a message of the batch before the last could not be sent, or the server
// says no. Any other leaves open what was stored, and wraps durable.ErrUncertain. A batch that
// waits for its place among maxBatches has sent nothing yet.
func (s *Stream) publish(ctx context.Context, backs int64, groups []Group) (uint64, error) {
	var msgs []*nats.Msg
	for _, g := range groups {
		for i := range g {
			msgs = append(msgs, g[i].msg())
		}
	}
	if err := s.CheckDisk(); err != nil {
		return 0, err
	}
	last := msgs[len(msgs)-1]
	if len(msgs) > 1 {
		id := rand.Text()
		for i, m := range msgs {
			m.Header.Set("Nats-Batch-Id", id)
			m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		}
		last.Header.Set("Nats-Batch-Commit", "1")
		select {
		case s.batches <- struct{}{}:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-s.Conn.Ended.Done():
			return 0, s.ClosedBy()
		}
		defer func() { <-s.batches }()
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if err := s.checkPast(ctx); err != nil {
		return 0, err
	}
	if s.Backs() != backs && slices.ContainsFunc(slices.Concat(groups...), func(w Write) bool { return w.Last != nil }) {
		return 0, ErrWentBack
	}
	was := s.history.now()
	answer, err := Call(ctx, s.Conn, s.deposed(), func() (*nats.Msg, error) {
		if s.Conn.NC.IsClosed() {
			return nil, &unsentError{nats.ErrConnectionClosed}
		}
		for _, m := range msgs[:len(msgs)-1] {
			if err := s.Conn.NC.PublishMsg(m); err != nil {
				return nil, &unsentError{err}
			}
		}
		return s.Conn.NC.RequestMsgWithContext(ctx, last)
	})
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.As(err, new(*unsentError)):
		return 0, err
	case err != nil: // also of a connection that was closed while the answer was awaited
		return 0, fmt.Errorf("%w: %w", driver.ErrUncertain, err)
	}
	var ack struct {
		Error *apiError `json:"error"`
		Seq   uint64    `json:"seq"`
	}
	err = json.Unmarshal(answer.Data, &ack)
	switch {
	case err == nil && ack.Error != nil:
		return 0, ack.Error.err()
	case err == nil && ack.Seq < uint64(len(msgs)): // null, or of something else
		err = errors.New("its sequence cannot be that of the write")
	}
	if err != nil {
		return 0, fmt.Errorf("%w: cannot read the answer: %w", driver.ErrUncertain, err)
	}
	s.wrote(was, groups, ack.Seq)
	return ack.Seq, nil
}

// unsentError is that of a write that was certainly not done: the server stores nothing of a batch
// before its last message, and that was not sent.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// Remove removes one message, if the user has the right to. The caller has stored the end of its
// job before, so there is no error: a message that stays, or comes back, is known to have ended,
// and goes with its bucket. Backs is that of before the message was read.
func (s *Stream) Remove(ctx context.Context, backs int64, m Message) {
	if s.mayNotRemove.Load() || s.CheckDisk() != nil {
		return
	}
	err := s.removal(ctx, backs, "STREAM.MSG.DELETE.", map[string]any{"seq": m.Seq, "no_erase": true})
	s.mayNotRemove.Store(IsDenial(err)) // else each cancel would be an error of the connection
}

// Purge removes the messages of a subject up to a sequence. The server has no condition for it, so a
// caller passes the last sequence that it has read, and the Backs of before: what came since stays.
// After an error the caller begins anew, by reading.
func (s *Stream) Purge(ctx context.Context, backs int64, filter string, upTo uint64) error {
	if err := s.CheckDisk(); err != nil {
		return err
	}
	return s.removal(ctx, backs, "STREAM.PURGE.", map[string]any{"filter": filter, "seq": upTo + 1})
}

// PurgeAll removes all messages of a subject, whatever was read of it. It may be repeated.
func (s *Stream) PurgeAll(ctx context.Context, filter string) error {
	if err := s.CheckDisk(); err != nil {
		return err
	}
	return s.Ask(ctx, "STREAM.PURGE."+s.Name, map[string]any{"filter": filter}, nil)
}

// removal asks once, unlike Ask. A stream that was put back has other messages by these sequences, or
// lacks what was stored elsewhere before they were to be removed. So the past is looked at before, as
// it is before a write, and again before the next try, which is the caller's: without an answer the
// error wraps durable.ErrUncertain, as that of a write.
func (s *Stream) removal(ctx context.Context, backs int64, api string, request map[string]any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if err = s.checkPast(ctx); err != nil {
		return unknown(err)
	}
	if s.Backs() != backs {
		return ErrWentBack
	}
	m, err := s.requestOnce(ctx, s.API+api+s.Name, body)
	switch {
	case err != nil:
		return unknown(err)
	case bytes.Contains(m.Data, noLeader):
		return unknown(nats.ErrNoResponders)
	}
	return ParseAnswer(m.Data, nil)
}

// unknown makes an error that of a removal without an answer, unless it is one or no later try can succeed.
func unknown(err error) error {
	if errors.Is(err, driver.ErrUncertain) || errors.Is(err, driver.ErrClosed) || errors.Is(err, driver.ErrVersion) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUncertain, err)
}

// TooLarge returns an error that wraps durable.ErrInvalid if a message is larger than most. It
// names max_payload, the one setting that a user can change.
func TooLarge(what string, size, most int) error {
	if size <= most {
		return nil
	}
	return fmt.Errorf("%w: %s has %d bytes as it is stored, more than the server's max_payload allows, %d", driver.ErrInvalid, what, size, most)
}

// checkSize returns an error if a message of a group is too large. It is called for each group of each
// commit, so it makes no text before there is an error.
func (s *Stream) checkSize(g Group) error {
	most := s.Conn.MaxPayload()
	for i := range g {
		if size := len(g[i].Data) + len(g[i].Guard) + HeadersSize; size > most {
			return TooLarge("a message of "+g[i].Subject, size, most)
		}
	}
	return nil
}
