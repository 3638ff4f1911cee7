package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
)

// stream is a client that writes, and knows of its stream what answers have shown: whether it went back, has the
// version and the settings that it must have, and how large it is. It knows no job.
//
// A write has no effect, or all of it: never a part, but in a server that is full and alone (admission.go). Mu guards
// what the last answer has shown, but for what is atomic, which is one number each. Room and drop are set before the stream is shared, and called without a lock.
type stream struct {
	*client
	clock   *clock.Clock
	batches chan struct{}                              // has one for each batch under way
	version int                                        // wireVersion, but in tests
	shift   func(leader string, t time.Time) time.Time // nil but in tests
	free    func() (int64, error)                      // on the disk; may be nil

	room func(ctx context.Context) bool // makes room after a write was refused for want of it, and reports whether it has
	drop []func()                       // each drops what is cached of a stream that went back

	history      history
	staleAge     time.Duration // handle.go
	nonce        string        // of the witnesses of this engine
	landmarks    string        // the prefix of the subjects whose messages are the better landmarks
	checked      atomic.Int64  // the losses of the connection after which the past was looked at
	created      atomic.Int64  // when the stream was made, or restored from a backup
	mayNotRemove atomic.Bool   // messages, as the server has said
	mayNotPurge  atomic.Bool

	bytes   atomic.Uint64 // as the last answer has said, and what was written from here since
	written atomic.Uint64 // bytes from here, in all

	mu      sync.Mutex
	synced  time.Time // when an answer has shown the rest
	refusal error     // nil: the stream has a version that this engine knows
	trouble trouble
}

// info asks the stream's leader. It returns ErrVersion if the stream has a newer version.
func (s *stream) info(ctx context.Context, filter string) (streamInfo, error) {
	total := streamInfo{subjects: map[string]uint64{}}
	for {
		var answer struct {
			Total   int       `json:"total"`
			Now     time.Time `json:"ts"`
			Created time.Time `json:"created"`
			Cluster struct {
				Leader string `json:"leader"`
				Since  string `json:"leader_since"`
			} `json:"cluster"`
			Config natsjs.StreamConfig `json:"config"`
			State  struct {
				Bytes    uint64            `json:"bytes"`
				LastSeq  uint64            `json:"last_seq"`
				Subjects map[string]uint64 `json:"subjects"`
			} `json:"state"`
		}
		request := map[string]any{}
		if filter != "" {
			request["subjects_filter"], request["offset"] = filter, len(total.subjects)
		}
		was := s.history.now()
		if err := s.ask(ctx, "STREAM.INFO."+s.name, request, &answer); err != nil {
			return total, err
		}
		s.saw(was, answer.Created.UnixNano(), answer.State.LastSeq)
		s.noteLeader(answer.Cluster.Leader + " " + answer.Cluster.Since)
		s.bytes.Store(answer.State.Bytes)
		s.mu.Lock()
		s.synced = time.Now()
		_, s.refusal = versionOf(answer.Config.Metadata[metaVersion], s.version)
		refusal := s.refusal
		s.trouble.settings = checkSettings(&answer.Config, s.name, s.nc.maxPayload())
		s.mu.Unlock()
		if refusal != nil {
			return total, refusal
		}
		total.now, total.leader = answer.Now, answer.Cluster.Leader
		total.last = answer.State.LastSeq
		for s, n := range answer.State.Subjects {
			total.subjects[s] = n
		}
		if len(answer.State.Subjects) == 0 || len(total.subjects) >= answer.Total {
			return total, nil
		}
	}
}

// streamInfo is what is asked for of the server's account of a stream.
type streamInfo struct {
	now      time.Time
	leader   string // the server that has answered; empty where there is but one
	last     uint64
	subjects map[string]uint64 // messages of each that the filter selects
}

// age is for how long no answer has shown the stream's version, settings and size.
func (s *stream) age() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.synced)
}

// checkVersion returns an error before a write if the stream has a version that p does not
// know. A server that does not answer does not take the write either.
func (s *stream) checkVersion(ctx context.Context) error {
	s.mu.Lock()
	refusal, old := s.refusal, time.Since(s.synced) > versionAge
	s.mu.Unlock()
	if old {
		ctx, cancel := context.WithTimeout(ctx, versionAge)
		defer cancel()
		if _, err := s.info(ctx, ""); errors.Is(err, driver.ErrVersion) || errors.Is(err, driver.ErrStorage) {
			return err
		}
		return nil
	}
	return refusal
}

// wrongSettings returns an error while a setting loses jobs, or stops the queue.
func (s *stream) wrongSettings() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble.settings
}

// troubled returns it.
func (s *stream) troubled() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble.settings != nil {
		return s.trouble.settings
	}
	if time.Since(s.trouble.at) < troubleLasts {
		return s.trouble.consumer
	}
	return nil
}

// now returns the server's time.
func (s *stream) now() time.Time {
	t, _ := s.clock.Now()
	return t
}

// serverTime is the time of a message of the stream.
func (s *stream) serverTime(t time.Time) time.Time {
	if s.shift != nil {
		return s.shift("", t)
	}
	return t
}

// checkDisk returns ErrFull while the disk has no room. The server must not be asked for a write
// then: one that fails for want of room is the last that the stream takes.
func (s *stream) checkDisk() error {
	if s.free == nil {
		return nil
	}
	if _, err := s.free(); errors.Is(err, driver.ErrFull) {
		return err
	}
	return nil
}

// lastsOf returns the last message of each subject that a filter selects, however many.
func (s *stream) lastsOf(ctx context.Context, filter string) (map[string]stored, error) {
	info, err := s.info(ctx, filter)
	if err != nil {
		return nil, err
	}
	return s.lasts(ctx, slices.Collect(maps.Keys(info.subjects)))
}

// learnSequence takes over what an answer says: that the stream had the sequence before at least when the question
// came, and now has the sequence now.
func (s *stream) learnSequence(was moment, before, now uint64) {
	if before < was.high {
		s.wentBack(was.backs, now, fmt.Sprintf("the stream %s had the sequence %d, and now has %d", s.name, was.high, now))
		return
	}
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.backs == was.backs {
		h.high = max(h.high, now)
	}
}

// wentBack notes that the stream went back, and drops what is cached, unless that was done since backs.
func (s *stream) wentBack(backs int64, now uint64, how string) {
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
		s.mu.Unlock()
		for _, f := range s.drop {
			f()
		}
	}
}

// compareLandmark reads whether a message is as it was written when the stream had gone back so often.
func (s *stream) compareLandmark(ctx context.Context, backs int64, l landmark) error {
	if l.seq == 0 {
		return nil
	}
	m, err := s.directly(ctx, "", fmt.Appendf(nil, `{"seq": %d}`, l.seq))
	if err != nil || m.Seq == 0 || m.Subject == l.subject && bytes.Equal(m.Data, l.data) {
		return err // none: it was removed, or replaced
	}
	s.wentBack(backs, 0, fmt.Sprintf("the stream %s has another message of the sequence %d", s.name, l.seq))
	return nil
}

// checkPast looks whether the stream went back when the connection was lost: before the next write, since the conditions
// of a write are sequences. It returns errWentBack if it did.
func (s *stream) checkPast(ctx context.Context) error {
	losses := s.nc.losses.Load()
	if s.checked.Load() == losses {
		return nil
	}
	h := &s.history
	h.mu.Lock()
	backs, l := h.backs, h.last
	h.mu.Unlock()
	_, err := s.info(ctx, "")
	if err == nil {
		err = s.compareLandmark(ctx, backs, l)
	}
	switch {
	case isCode(err, codeNoStream): // it may be restored soon
		return nats.ErrNoResponders
	case isDenial(err), errors.Is(err, nats.ErrNoResponders), errors.Is(err, driver.ErrVersion), errors.Is(err, driver.ErrClosed):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", driver.ErrUncertain, err)
	}
	s.checked.Store(losses)
	if h.now().backs != backs {
		return errWentBack
	}
	return nil
}

// wrote learns from a write that was stored, and whose last message has a sequence.
func (s *stream) wrote(was moment, groups []group, last uint64) {
	writes, bytes := 0, 0
	for _, g := range groups {
		writes += len(g)
		bytes += g.size()
	}
	s.bytes.Add(uint64(bytes))
	s.written.Add(uint64(bytes))
	first := last + 1 - uint64(writes)
	s.learnSequence(was, first-1, last)
	s.history.note(was.backs, first, groups, s.landmarks)
}

// saw learns from what the server says of the stream: when it was made, and its last sequence.
func (s *stream) saw(was moment, created int64, last uint64) {
	if before := s.created.Swap(created); before != 0 && before != created {
		s.wentBack(was.backs, 0, fmt.Sprintf("the stream %s was made anew", s.name))
	} else if s.replicas == 1 {
		s.learnSequence(was, last, last)
	}
}
