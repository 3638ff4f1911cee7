package stream

import (
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

const (
	MaxWrites     = 1000             // of an atomic batch: the server's limit
	maxWriteBytes = 4 << 20          // of an atomic batch
	maxBatches    = 8                // under way at once; the server takes 50 for a stream
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

// Result is what became of a group.
type Result struct {
	First uint64 // the sequence of its first message; those of a batch follow one another; 0 with an error
	Err   error
}

// Write commits one group.
func (s *Stream) Write(ctx context.Context, g ...Write) error {
	return s.Commit(ctx, []Group{g})[0].Err
}

// WriteSeq is write, and returns the sequence of the first message.
func (s *Stream) WriteSeq(ctx context.Context, g ...Write) (uint64, error) {
	res := s.Commit(ctx, []Group{g})[0]
	return res.First, res.Err
}

// Commit writes groups, as many as possible in one commit, and returns what became of
// each: nil; ErrConflict, if a condition does not hold; durable.ErrUncertain, ErrFull, ErrInvalid
// if it is too large; or
// another error, and then it was not written. When something is wrong with one group the
// batch is refused as a whole, and is tried again in halves.
func (s *Stream) Commit(ctx context.Context, groups []Group) []Result {
	if slices.ContainsFunc(groups, func(g Group) bool { return s.checkSize(g) != nil }) {
		return s.commitFitting(ctx, groups)
	}
	results, backs := make([]Result, len(groups)), s.Backs()
	for from := 0; from < len(groups); {
		to, writes, bytes := from, 0, 0
		for to < len(groups) && (to == from || writes+len(groups[to]) <= MaxWrites && bytes+groups[to].size() <= maxWriteBytes) {
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

// commitFew writes groups of one message each by itself, all at once.
func (s *Stream) commitFew(ctx context.Context, backs int64, groups []Group, results []Result) {
	var wg sync.WaitGroup
	for i := range groups {
		wg.Go(func() { stack.Grow(); s.commitBatch(ctx, backs, groups[i:i+1], results[i:i+1]) })
	}
	wg.Wait()
}

// commitBatch commits groups that fit into one batch. The server names no culprit when it refuses a batch. So a conflict of
// one group among n costs about 2 log n batches, and the others are stored; to send each group by itself would cost n
// commits. An error that says nothing about one group, or leaves open what was stored, is that of all.
func (s *Stream) commitBatch(ctx context.Context, backs int64, groups []Group, results []Result) {
	if n := len(groups); n > 1 && n <= FewWrites && !slices.ContainsFunc(groups, func(g Group) bool { return len(g) > 1 }) {
		s.commitFew(ctx, backs, groups, results)
		return
	}
	err := s.commitAtOnce(ctx, backs, groups, results)
	if len(groups) > 1 && (errors.Is(err, ErrConflict) || errors.Is(err, ErrBusy)) && !errors.Is(err, ErrWentBack) {
		half := len(groups) / 2
		s.commitBatch(ctx, backs, groups[:half], results[:half])
		s.commitBatch(ctx, backs, groups[half:], results[half:])
	}
}

// CommitAtOnce is Commit of all groups or none, which fit into one batch.
func (s *Stream) CommitAtOnce(ctx context.Context, groups []Group) []Result {
	results := make([]Result, len(groups))
	_ = s.commitAtOnce(ctx, s.Backs(), groups, results)
	return results
}

// commitAtOnce writes all groups or none. Backs is of when the commit began, as the conditions of the groups are: that the
// stream went back may be found on the way, such as by the question for the version.
func (s *Stream) commitAtOnce(ctx context.Context, backs int64, groups []Group, results []Result) error {
	last, err := s.publishPatiently(ctx, backs, groups)
	next := last + 1
	for i := len(groups) - 1; i >= 0; i-- {
		if err != nil {
			results[i] = Result{Err: err}
			continue
		}
		next -= uint64(len(groups[i]))
		results[i] = Result{First: next}
	}
	return err
}

// publishPatiently publishes, again after a while if the server was busy with the same
// subjects, or has no leader: then nothing was written.
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
		}
		defer func() { <-s.batches }()
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if err := s.checkPast(ctx, backs, groups); err != nil {
		return 0, err
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
		err = errors.New("it has no sequence that the write can have")
	}
	if err != nil {
		return 0, fmt.Errorf("%w: cannot read the answer: %w", driver.ErrUncertain, err)
	}
	s.wrote(was, groups, ack.Seq)
	return ack.Seq, nil
}

// unsentError is that of a write that was certainly not done: the server stores nothing of a batch before its last
// message, and that was not sent.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// Remove removes one message, if the user has the right to. The caller has stored the end of its job before.
func (s *Stream) Remove(ctx context.Context, m Message) {
	if s.mayNotRemove.Load() || s.CheckDisk() != nil {
		return
	}
	err := s.Ask(ctx, "STREAM.MSG.DELETE."+s.Name, map[string]any{"seq": m.Seq, "no_erase": true}, nil)
	s.mayNotRemove.Store(IsDenial(err)) // else each cancel would be an error of the connection
}

// Purge removes the messages of a subject up to a sequence, 0 for all.
func (s *Stream) Purge(ctx context.Context, filter string, upTo uint64) error {
	if err := s.CheckDisk(); err != nil {
		return err
	}
	request := map[string]any{"filter": filter}
	if upTo > 0 {
		request["seq"] = upTo + 1
	}
	return s.Ask(ctx, "STREAM.PURGE."+s.Name, request, nil)
}

// TooLarge returns an error that wraps durable.ErrInvalid if a message is larger than most.
func TooLarge(what string, size, most int) error {
	if size <= most {
		return nil
	}
	return fmt.Errorf("%w: %s has %d bytes as it is stored, more than the server's max_payload allows, %d", driver.ErrInvalid, what, size, most)
}

// checkSize returns an error if a message of a group is too large.
func (s *Stream) checkSize(g Group) error {
	most := s.Conn.MaxPayload()
	for i := range g {
		if size := len(g[i].Data) + len(g[i].Guard) + HeadersSize; size > most {
			return TooLarge("a message of "+g[i].Subject, size, most)
		}
	}
	return nil
}

// commitFitting commits those groups that are not too large.
func (s *Stream) commitFitting(ctx context.Context, groups []Group) []Result {
	results, fit, at := make([]Result, len(groups)), []Group(nil), []int(nil)
	for i, g := range groups {
		if results[i].Err = s.checkSize(g); results[i].Err == nil {
			fit, at = append(fit, g), append(at, i)
		}
	}
	for k, res := range s.Commit(ctx, fit) {
		results[at[k]] = res
	}
	return results
}
