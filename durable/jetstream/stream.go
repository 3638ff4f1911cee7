package jetstream

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
	landmarks    string       // the prefix of the subjects whose messages are the better landmarks
	checked      atomic.Int64 // the losses of the connection after which the past was looked at
	created      atomic.Int64 // when the stream was made, or restored from a backup
	mayNotRemove atomic.Bool  // messages, as the server has said

	bytes   atomic.Uint64 // as the last answer has said, and what was written from here since
	written atomic.Uint64 // bytes from here, in all

	mu      sync.Mutex
	synced  time.Time // when an answer has shown the rest
	refusal error     // nil: the stream has a version that this engine knows
	trouble trouble
}

// newStream returns a stream of which nothing is known yet, also not its replicas. Version is the newest that the caller knows.
func newStream(nc *conn, d *denials, api, name string, version int) *stream {
	return &stream{client: &client{nc: nc, api: api, denials: d, name: name}, batches: make(chan struct{}, maxBatches), version: version}
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
