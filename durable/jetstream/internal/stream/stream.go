// Package stream is a client of one stream of a NATS server: it asks, reads, writes on conditions, removes, and pulls from
// consumers. It knows servers that are silent, behind, full or deposed, denials, and streams that went back, were changed or
// have a newer version. It knows no job, no bucket, and no subject but those of the server's API.
package stream

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
)

// Stream is a client that writes, and knows of its stream what answers have shown: whether it went back, has the
// version and the settings that it must have, and how large it is. It knows no job.
//
// A write has no effect, or all of it: never a part, but in a server that is full and alone. Mu guards the fields
// that answers set; those that are one number are atomic instead. Room and drop are set before the stream is
// shared, and called without a lock.
type Stream struct {
	*client
	Clock   *clock.Clock
	batches chan struct{}                              // has one for each batch under way
	Version int                                        // the newest that the caller knows
	Shift   func(leader string, t time.Time) time.Time // nil but in tests
	Free    func() (int64, error)                      // on the disk; may be nil

	Room func(ctx context.Context) bool // makes room after a write was refused for want of it, and reports whether it has
	Drop []func()                       // each drops what is cached of a stream that went back

	history      history
	Landmarks    string       // the prefix of the subjects whose messages are the better landmarks
	checked      atomic.Int64 // the losses of the connection after which the past was looked at
	created      atomic.Int64 // when the stream was made, or restored from a backup
	mayNotRemove atomic.Bool  // messages, as the server has said

	Bytes   atomic.Uint64 // as the last answer has said, and what was written from here since
	Written atomic.Uint64 // bytes from here, in all

	mu      sync.Mutex
	synced  time.Time // when an answer has shown the rest
	state   state
	since   time.Time // when an answer has first shown the state
	refusal error     // nil: the stream has a version that this engine knows
	trouble trouble
}

// New returns a stream of which nothing is known yet, also not its replicas. Version is the newest that the caller knows.
func New(nc *Conn, d *Denials, api, name string, version int) *Stream {
	return &Stream{client: &client{Conn: nc, API: api, Denials: d, Name: name}, batches: make(chan struct{}, maxBatches), Version: version}
}

// Info asks the stream's leader. It returns ErrVersion if the stream has a newer version.
func (s *Stream) Info(ctx context.Context, filter string) (Info, error) {
	total := Info{Subjects: map[string]uint64{}}
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
				state
				Subjects map[string]uint64 `json:"subjects"`
			} `json:"state"`
		}
		request := map[string]any{}
		if filter != "" {
			request["subjects_filter"], request["offset"] = filter, len(total.Subjects)
		}
		was := s.history.now()
		if err := s.Ask(ctx, "STREAM.INFO."+s.Name, request, &answer); err != nil {
			return total, err
		}
		s.saw(was, answer.Created.UnixNano(), answer.State.LastSeq)
		s.noteLeader(answer.Cluster.Leader + " " + answer.Cluster.Since)
		s.Bytes.Store(answer.State.Bytes)
		s.mu.Lock()
		s.synced = time.Now()
		s.noteState(answer.State.state)
		_, s.refusal = VersionOf(answer.Config.Metadata[MetaVersion], s.Version)
		refusal := s.refusal
		s.trouble.settings = CheckSettings(&answer.Config, s.Name, s.Conn.MaxPayload())
		s.mu.Unlock()
		if refusal != nil {
			return total, refusal
		}
		total.Now, total.Leader = answer.Now, answer.Cluster.Leader
		total.Last = answer.State.LastSeq
		for s, n := range answer.State.Subjects {
			total.Subjects[s] = n
		}
		if len(answer.State.Subjects) == 0 || len(total.Subjects) >= answer.Total {
			return total, nil
		}
	}
}

// state is what the server says of a stream as a whole. While it is the same, and the stream has not gone back, so are all
// messages: a message that is stored has another sequence and time, and one that is removed is one less.
type state struct {
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
	LastTime string `json:"last_ts"`
}

// noteState notes the state that an answer shows. With several replicas any answer may be old, so none shows that the
// stream is as it was. s.mu is held.
func (s *Stream) noteState(now state) {
	if now != s.state || s.Replicas != 1 {
		s.state, s.since = now, time.Now()
	}
}

// Since returns since when the messages of the stream have been the same, as of the last answer to Info: what was read
// later needs not be read again.
func (s *Stream) Since() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}

// Info is what is asked for of the server's account of a stream.
type Info struct {
	Now      time.Time
	Leader   string // the server that has answered; empty where there is but one
	Last     uint64
	Subjects map[string]uint64 // messages of each that the filter selects
}

// Age is for how long no answer has shown the stream's version, settings and size.
func (s *Stream) Age() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.synced)
}

// checkVersion returns an error before a write if the stream has a version that p does not
// know. A server that does not answer does not take the write either.
func (s *Stream) checkVersion(ctx context.Context) error {
	s.mu.Lock()
	refusal, old := s.refusal, time.Since(s.synced) > versionAge
	s.mu.Unlock()
	if old {
		ctx, cancel := context.WithTimeout(ctx, versionAge)
		defer cancel()
		if _, err := s.Info(ctx, ""); errors.Is(err, driver.ErrVersion) || errors.Is(err, driver.ErrStorage) {
			return err
		}
		return nil
	}
	return refusal
}

// WrongSettings returns an error while a setting loses jobs, or stops the queue.
func (s *Stream) WrongSettings() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble.settings
}

// Troubled returns it.
func (s *Stream) Troubled() error {
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

// Now returns the server's time.
func (s *Stream) Now() time.Time {
	t, _ := s.Clock.Now()
	return t
}

// ServerTime is the time of a message of the stream.
func (s *Stream) ServerTime(t time.Time) time.Time {
	if s.Shift != nil {
		return s.Shift("", t)
	}
	return t
}

// CheckDisk returns ErrFull while the disk has no room. The server must not be asked for a write
// then: one that fails for want of room is the last that the stream takes.
func (s *Stream) CheckDisk() error {
	if s.Free == nil {
		return nil
	}
	if _, err := s.Free(); errors.Is(err, driver.ErrFull) {
		return err
	}
	return nil
}

// LastsOf returns the last message of each subject that a filter selects, however many.
func (s *Stream) LastsOf(ctx context.Context, filter string) (map[string]Message, error) {
	info, err := s.Info(ctx, filter)
	if err != nil {
		return nil, err
	}
	return s.Lasts(ctx, slices.Collect(maps.Keys(info.Subjects)))
}
