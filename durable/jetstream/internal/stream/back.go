package stream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// LookBack reads the message that was the last one of this engine's at the call before. It may have
// been removed since, or in its place one of another history. So its subject tells, too: the last
// message there is no older, unless the server is behind. With several replicas LookBack reads it as of
// the message that testify writes. Only a subject with the prefix Landmarks tells: messages share
// others, and an older one may be left there when the last one is removed.
//
// It costs two reads a poll, and the write of a witness only after a suspicion. The message of the
// call before is read, and not the newest one: a server that is a moment behind has that one
// already, and so gives no false suspicion.
func (s *Stream) LookBack(ctx context.Context, testify func(context.Context) (Witness, error)) error {
	h := &s.history
	h.mu.Lock()
	backs, l := h.backs, h.prev
	h.prev = h.last
	h.mu.Unlock()
	if l.seq == 0 {
		return nil
	}
	older := func(m Message) bool { return m.Seq > 0 && m.Seq < l.seq }
	var m Message
	var err error
	if strings.HasPrefix(l.subject, s.Landmarks) {
		m, err = s.Directly(ctx, "."+l.subject, nil)
	}
	if err == nil && older(m) && s.Replicas() > 1 {
		var written Witness
		if written, err = testify(ctx); err == nil {
			m, err = s.LastSince(ctx, written, l.subject, false)
		}
	}
	if err == nil && older(m) {
		s.WentBack(backs, 0, fmt.Sprintf("the stream %s has lost the message with the sequence %d", s.Name, l.seq))
		return nil
	}
	return cmp.Or(err, s.compareLandmark(ctx, backs, l))
}

// compareLandmark reads whether a message is as it was written when the stream had gone back so
// often. Any server may answer: one that is behind lacks the message, which says nothing, and no
// server has another message of that sequence in one history.
func (s *Stream) compareLandmark(ctx context.Context, backs int64, l landmark) error {
	if l.seq == 0 {
		return nil
	}
	m, err := s.Directly(ctx, "", fmt.Appendf(nil, `{"seq": %d}`, l.seq))
	if err != nil || m.Seq == 0 || m.Subject == l.subject && bytes.Equal(m.Data, l.data) {
		return err // none: it was removed, or replaced
	}
	s.WentBack(backs, 0, fmt.Sprintf("the stream %s has another message with the sequence %d", s.Name, l.seq))
	return nil
}

// checkPast looks whether the stream went back, when the connection was lost, before the next write or
// removal. The caller compares Backs then: a sequence of before is that of another message.
//
// While the stream is not there nothing is known: it may be restored soon, so that is taken for a
// server which does not answer, and the write is tried again. Nor was anything sent after any other
// error. Most of those wrap durable.ErrUncertain all the same: the caller finds out that nothing is
// stored, and tries once more.
//
// A server loses what it had by a restart, which ends its connections. So a write on a connection
// that has lasted costs a comparison of two numbers, and no request; a client of another server
// finds out by LookBack, or by its next answers. If two writes find a loss at one time, both read.
// None is sent before that has succeeded once. Writes without a condition are sent to a stream that
// went back, too: they rest on nothing that was read.
func (s *Stream) checkPast(ctx context.Context) error {
	if losses := s.Conn.losses.Load(); s.checked.Load() != losses {
		s.history.mu.Lock()
		now, l := s.history.backs, s.history.last
		s.history.mu.Unlock()
		_, err := s.Info(ctx, "")
		if err == nil {
			err = s.compareLandmark(ctx, now, l)
		}
		switch {
		case IsCode(err, CodeNoStream): // it may be restored soon
			return nats.ErrNoResponders
		case IsDenial(err), errors.Is(err, nats.ErrNoResponders), errors.Is(err, driver.ErrVersion), errors.Is(err, driver.ErrClosed):
			return err
		case err != nil:
			return fmt.Errorf("%w: %w", driver.ErrUncertain, err)
		}
		s.checked.Store(losses)
	}
	return nil
}

// wrote learns from a write that was stored, and whose last message has a sequence. The messages of
// a batch follow one another, so that the stream had the sequence before the first of them when the
// write came. Bytes are estimated (Group.size): the next answer of Info replaces the sum.
func (s *Stream) wrote(was moment, groups []Group, last uint64) {
	writes, bytes := 0, 0
	for _, g := range groups {
		writes += len(g)
		bytes += g.size()
	}
	s.Bytes.Add(uint64(bytes))
	s.Written.Add(uint64(bytes))
	first := last + 1 - uint64(writes)
	s.learnSequence(was, first-1, last)
	s.history.note(was.backs, first, groups, s.Landmarks)
}
