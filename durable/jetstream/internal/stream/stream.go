// Package stream is a client of one stream of a NATS server: it asks, reads, writes on conditions,
// removes, and pulls from consumers. It knows servers that are silent, behind, full or deposed,
// denials, and streams that went back, were changed or have a newer version. It knows no job, no
// bucket, and no subject but those of the server's API.
//
// A server may be slow, silent, deposed, or gone between a question and its answer, and without the
// answer these are all the same. So all files here keep three rules:
//
//   - A read says from whom it may come: from any server, which may be behind; from the leader, which may
//     be deposed without knowing it; or from one that stores a certain write (LastSince).
//   - A write that was not answered is durable.ErrUncertain, and is never repeated here. Only its caller
//     knows how to find out.
//   - No lock is held while a question is under way, and no call that has a context outlasts it.
//
// The files. Each uses only those that come after it.
//
//	commit.go, pull.go         writes, with what became of them; requests to consumers
//	back.go                    finds out whether the stream went back
//	stream.go                  Stream, and what answers have shown of the stream
//	history.go, settings.go    the stream's past; the servers and settings that will do
//	client.go                  questions and reads, and what the server's errors mean
//	message.go, silent.go      what is written; questions that are asked again beside the first
//	denied.go, conn.go         what the user may not do; a connection that no call waits for
package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
)

// Stream is a client that writes, and knows of its stream what answers have shown: whether it went
// back, has the version and the settings that it must have, and how large it is. It knows no job.
//
// A write has no effect, or all of it: never a part, but in a server that is full and alone. Mu
// guards the fields that answers set; those that are one number are atomic instead. Room and drop
// are set before the stream is shared, and called without a lock.
//
// The fields that answers set are old by up to a poll. They refuse no write, except for a newer
// version. The history has a lock of its own, which is never held together with mu.
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

	mu       sync.Mutex
	synced   time.Time // when an answer has shown the next four
	state    state
	since    time.Time // when an answer has first shown the state
	refusal  error     // nil: the stream has a version that this engine knows
	settings error     // nil: they are right

	// A consumer could not be made, and when that was. That one was made later is not noted, so the
	// error ends by time: a worker that has no other queue to make would keep it for ever.
	consumer error
	failed   time.Time
}

// maxBatches are under way at once; the server takes 50 for a stream, from all clients together,
// and is busy for the rest.
const maxBatches = 8

// New returns a stream of which nothing is known yet, also not its replicas. Version is the newest
// that the caller knows. Until Info has succeeded once each write asks for the version first.
func New(nc *Conn, d *Denials, api, name string, version int) *Stream {
	return &Stream{client: &client{Conn: nc, API: api, Denials: d, Name: name}, batches: make(chan struct{}, maxBatches), Version: version}
}

// Info asks the stream's leader. It returns ErrVersion if the stream has a newer version. With a
// filter it also counts the messages of each subject, in as many requests as the server makes pages
// of them, of 100,000. These are of different moments: a subject that is new may be missing, and one
// that is listed may be gone. One that has been there all the time is listed. An empty filter costs
// one request.
//
// A page is a part of the sorted subjects, from an offset on. When subjects before the offset are
// removed, the next ones move into the page that was read. So each page overlaps the one before by
// an eighth. If so many were removed that a page begins after the last listed subject, the next
// request begins at half the offset.
func (s *Stream) Info(ctx context.Context, filter string) (Info, error) {
	total := Info{Subjects: map[string]uint64{}}
	for offset, listed := 0, ""; ; { // all subjects up to listed are in total
		page, count, err := s.infoFrom(ctx, filter, offset, &total)
		if err != nil {
			return total, err
		}
		if offset > 0 && (len(page) == 0 || slices.Min(slices.Collect(maps.Keys(page))) > listed) {
			offset /= 2
			continue
		}
		maps.Copy(total.Subjects, page)
		if offset += len(page); offset >= count {
			return total, nil
		}
		listed = max(listed, slices.Max(slices.Collect(maps.Keys(page))))
		offset -= 1 + len(page)/8
	}
}

// infoFrom is one request of Info: it returns the page of subjects from an offset on, and how many
// subjects there are in all.
func (s *Stream) infoFrom(ctx context.Context, filter string, offset int, total *Info) (page map[string]uint64, count int, err error) {
	var answer struct {
		natsjs.StreamInfo
		Total   int `json:"total"` // subjects
		Cluster struct {
			Leader string `json:"leader"`
			Since  string `json:"leader_since"`
		} `json:"cluster"`
		State struct {
			state
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
	}
	request := map[string]any{}
	if filter != "" {
		request["subjects_filter"], request["offset"] = filter, offset
	}
	was := s.history.now()
	if err := s.Ask(ctx, "STREAM.INFO."+s.Name, request, &answer); err != nil {
		return nil, 0, err
	}
	s.LearnReplicas(answer.Config.Replicas) // before saw and noteState
	s.saw(was, answer.Created.UnixNano(), answer.State.LastSeq)
	s.noteLeader(answer.Cluster.Leader + " " + answer.Cluster.Since)
	s.Bytes.Store(answer.State.Bytes)
	_, refusal := VersionOf(answer.Config.Metadata[MetaVersion], s.Version)
	wrong := CheckSettings(&answer.Config, s.Name, s.Conn.MaxPayload())
	s.mu.Lock()
	s.synced, s.refusal, s.settings = time.Now(), refusal, wrong
	s.noteState(answer.State.state)
	s.mu.Unlock()
	if refusal == nil {
		total.Now, total.Leader, total.Last = answer.TimeStamp, answer.Cluster.Leader, answer.State.LastSeq
	}
	return answer.State.Subjects, answer.Total, refusal
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
	if now != s.state || s.Replicas() != 1 {
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

// Info is the part of the server's account of a stream that callers need.
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

// checkVersion returns an error before a write if the stream has a version that is newer
// than the one known. While the server does not answer this question, the last answer counts.
//
// It asks only if nothing else has for versionAge. So a raised version stops all older programs
// within that time, and a busy one pays nothing for it: its polls and adds have read the stream's
// description already.
func (s *Stream) checkVersion(ctx context.Context) error {
	s.mu.Lock()
	refusal, old := s.refusal, time.Since(s.synced) > versionAge
	s.mu.Unlock()
	if old {
		ctx, cancel := context.WithTimeout(ctx, versionAge)
		defer cancel()
		if _, err := s.Info(ctx, ""); err == nil || errors.Is(err, driver.ErrVersion) || errors.Is(err, driver.ErrStorage) {
			return err
		}
	}
	return refusal
}

// WrongSettings returns an error while a setting loses jobs, or stops the queue.
func (s *Stream) WrongSettings() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings
}

// Troubled returns what keeps jobs from running, or loses them. Wrong settings come first: they
// last until somebody changes them, while a consumer may be made at the next try.
func (s *Stream) Troubled() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settings == nil && time.Since(s.failed) < troubleLasts {
		return s.consumer
	}
	return s.settings
}

// Now returns the server's time, as it was measured last and has gone on since: it asks nobody.
func (s *Stream) Now() time.Time {
	t, _ := s.Clock.Now()
	return t
}

// ServerTime is the time of a message of the stream, by the clock of the server that led it then.
// Tests set that clock by Shift.
func (s *Stream) ServerTime(t time.Time) time.Time {
	if s.Shift != nil {
		return s.Shift("", t)
	}
	return t
}

// CheckDisk returns ErrFull while the disk has no room. A caller must not send a write then: one that
// fails for want of room is the last that the stream takes. Free is set for a server in this process
// only; elsewhere this costs nothing.
func (s *Stream) CheckDisk() error {
	if s.Free != nil {
		if _, err := s.Free(); errors.Is(err, driver.ErrFull) {
			return err
		}
	}
	return nil
}

// LastsOf returns the last message of each subject that a filter selects, however many. One read
// with the filter would do for up to maxAnswer of them; here the leader lists the subjects first,
// and they are read in pages.
func (s *Stream) LastsOf(ctx context.Context, filter string) (map[string]Message, error) {
	info, err := s.Info(ctx, filter)
	if err != nil {
		return nil, err
	}
	return s.Lasts(ctx, slices.Collect(maps.Keys(info.Subjects)))
}

// LastsIn is Lasts of a filter, and LastsOf if it selects too much for one answer.
func (s *Stream) LastsIn(ctx context.Context, filter string) (map[string]Message, error) {
	found, err := s.Lasts(ctx, []string{filter})
	if errors.Is(err, ErrTooMany) {
		return s.LastsOf(ctx, filter)
	}
	return found, err
}

// Past returns how often the stream went back, and by which sign that was noticed the last time.
func (s *Stream) Past() (backs int64, how string) {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	return s.history.backs, s.history.how
}

// Backs returns how often the stream went back.
func (s *Stream) Backs() int64 { return s.history.now().backs }

// learnSequence takes over what an answer says: that the stream had the sequence before at least
// when the question came, and now has the sequence now.
func (s *Stream) learnSequence(was moment, before, now uint64) {
	if before < was.high {
		s.WentBack(was.backs, now, fmt.Sprintf("the last sequence of the stream %s was %d, and is now %d", s.Name, was.high, now))
		return
	}
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.backs == was.backs {
		h.high = max(h.high, now)
	}
}

// WentBack notes that the stream went back, and drops what is cached, unless that was done since
// backs: several answers may show it at one time, and the first one counts. The sequence now is the
// highest that is known of the stream as it is, 0 if none is.
func (s *Stream) WentBack(backs int64, now uint64, how string) {
	if !s.history.restart(backs, now, how) {
		return
	}
	s.mu.Lock()
	s.synced = time.Time{} // read before the next poll, or job that is added
	s.state = state{}      // whatever the next answer shows is another one
	s.mu.Unlock()
	for _, f := range s.Drop {
		f()
	}
}

// saw learns from the server's account of the stream: when it was made, and its last sequence. The
// latter counts on one replica only: of several servers one that was deposed may answer, which has
// less than was written since.
func (s *Stream) saw(was moment, created int64, last uint64) {
	if before := s.created.Swap(created); before != 0 && before != created {
		s.WentBack(was.backs, 0, fmt.Sprintf("the stream %s was made anew", s.Name))
	} else if s.Replicas() == 1 {
		s.learnSequence(was, last, last)
	}
}
