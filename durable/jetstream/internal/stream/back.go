package stream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// A stream goes back when its servers have lost what they had acknowledged: an earlier copy of the
// directory was put in its place, a backup was restored, or a power cut took what was not synced.
// Its sequences are given a second time then, to other messages. So what is known here of the
// stream is wrong, and an acknowledgment by sequence would be that of another job.
//
// Each of these says that it went back, and nothing else does:
//
//   - it was made anew;
//   - a write has a sequence that the stream had before the write was sent; with one replica also:
//     the stream says that its last sequence is lower than it was;
//   - a message that was written here is another one now. Each poll reads the one that was the last
//     at the poll before. That tells of a stream that went back and has grown since, by the writes
//     of others, beyond where it had been.
//
// From then on history.backs is another. All that is cached is dropped (Stream.Drop). A caller that keeps
// more than that compares it with what is stored, when Backs has another value.

// history is what is known of the past of a stream. The sequences of several replicas are only
// those of writes, which a majority has: a server that says what it has may be behind. Mu guards all of it, and is held
// for no request.
type history struct {
	mu    sync.Mutex
	backs int64    // how often the stream went back
	how   string   // by what that was noticed
	high  uint64   // the highest sequence that it has had since
	last  landmark // of this engine's writes
	prev  landmark // what last was at the last look
}

// ErrWentBack is that of what was to be written or removed by sequences of before the stream went back.
var ErrWentBack = fmt.Errorf("%w: the stream went back meanwhile", ErrConflict)

// landmark is a message that was written.
type landmark struct {
	seq     uint64
	subject string
	Data    []byte
}

// moment is what was known when a question or a write was sent.
type moment struct {
	backs int64
	high  uint64
}

func (h *history) now() moment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return moment{h.backs, h.high}
}

// Past returns how often the stream went back, and by what that was noticed the last time.
func (s *Stream) Past() (backs int64, how string) {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	return s.history.backs, s.history.how
}

// Backs returns how often the stream went back.
func (s *Stream) Backs() int64 { return s.history.now().backs }

// LookBack reads the message that was the last one of this engine's at the call before. It may have been removed
// since, or in its place one of another history. So its subject tells, too: the last message there is no older, unless
// the server is behind. With several replicas that is asked as of what testify writes.
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
	m, err := s.Directly(ctx, "."+l.subject, nil)
	if err == nil && older(m) && s.Replicas > 1 {
		var written Witness
		if written, err = testify(ctx); err == nil {
			m, err = s.LastSince(ctx, written, l.subject, false)
		}
	}
	if err == nil && older(m) {
		s.WentBack(backs, 0, fmt.Sprintf("the stream %s had a message of the sequence %d, and has the one before", s.Name, l.seq))
		return nil
	}
	return cmp.Or(err, s.compareLandmark(ctx, backs, l))
}

// note keeps a message that was written as a landmark: the last status of a commit, by which it is found that
// claims have ended; before there is one, any message with data, since tombstones are all alike.
func (h *history) note(backs int64, first uint64, groups []Group, status string) {
	n := first
	l := landmark{}
	for _, g := range groups {
		for i := range g {
			if len(g[i].Data) > 0 && (strings.HasPrefix(g[i].Subject, status) || !strings.HasPrefix(l.subject, status)) {
				l = landmark{n, g[i].Subject, g[i].Data}
			}
			n++
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if strings.HasPrefix(h.last.subject, status) && !strings.HasPrefix(l.subject, status) {
		return
	}
	if backs == h.backs && l.seq > h.last.seq {
		h.last = l
	}
}

// learnSequence takes over what an answer says: that the stream had the sequence before at least when the question
// came, and now has the sequence now.
func (s *Stream) learnSequence(was moment, before, now uint64) {
	if before < was.high {
		s.WentBack(was.backs, now, fmt.Sprintf("the stream %s had the sequence %d, and now has %d", s.Name, was.high, now))
		return
	}
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.backs == was.backs {
		h.high = max(h.high, now)
	}
}

// WentBack notes that the stream went back, and drops what is cached, unless that was done since backs.
func (s *Stream) WentBack(backs int64, now uint64, how string) {
	h := &s.history
	h.mu.Lock()
	first := h.backs == backs
	if first {
		h.backs++
		h.how, h.high, h.last, h.prev = how, now, landmark{}, landmark{}
	}
	h.mu.Unlock()
	if first {
		s.mu.Lock()
		s.synced = time.Time{} // read before the next poll, or job that is added
		s.state = state{}      // whatever the next answer shows is another one
		s.mu.Unlock()
		for _, f := range s.Drop {
			f()
		}
	}
}

// compareLandmark reads whether a message is as it was written when the stream had gone back so often.
func (s *Stream) compareLandmark(ctx context.Context, backs int64, l landmark) error {
	if l.seq == 0 {
		return nil
	}
	m, err := s.Directly(ctx, "", fmt.Appendf(nil, `{"seq": %d}`, l.seq))
	if err != nil || m.Seq == 0 || m.Subject == l.subject && bytes.Equal(m.Data, l.Data) {
		return err // none: it was removed, or replaced
	}
	s.WentBack(backs, 0, fmt.Sprintf("the stream %s has another message of the sequence %d", s.Name, l.seq))
	return nil
}

// checkPast returns ErrWentBack if the stream went back more often than backs says, and a write has a condition: it is a
// sequence of before. It looks when the connection was lost, before the next write.
func (s *Stream) checkPast(ctx context.Context, backs int64, groups []Group) error {
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
	conditional := func(w Write) bool { return w.Last != nil }
	if s.Backs() != backs && slices.ContainsFunc(groups, func(g Group) bool { return slices.ContainsFunc(g, conditional) }) {
		return ErrWentBack
	}
	return nil
}

// wrote learns from a write that was stored, and whose last message has a sequence.
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

// saw learns from what the server says of the stream: when it was made, and its last sequence.
func (s *Stream) saw(was moment, created int64, last uint64) {
	if before := s.created.Swap(created); before != 0 && before != created {
		s.WentBack(was.backs, 0, fmt.Sprintf("the stream %s was made anew", s.Name))
	} else if s.Replicas == 1 {
		s.learnSequence(was, last, last)
	}
}
