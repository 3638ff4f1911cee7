package jetstream

import (
	"context"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// seen is what polls have read of the stream, each with the time at which that began. It is
// still so while the stream is the same since an earlier time (Stream.Since). So a poll of a
// stream in which nothing happens is one request.
//
// The time at which a read began is noted, and not that of its answer: what is stored in
// between may be missing in it, and the stream is another one since. With several replicas
// any answer may be old, so nothing is taken for the same there (noteState), and each poll
// reads all. After an error the next poll reads again.
//
// The goroutine of a Fetch alone uses it, so it has no lock.
type seen struct {
	*consumers
	written uint64 // stream.Written at the last question to the server

	far   map[int64]uint64
	farAt time.Time // of the past and the watermark, too

	near     map[int64]map[string]uint64
	nearAt   time.Time
	nearTook time.Duration
	viewed   time.Time // when a poll has shown all buckets

	flow   *knownFlowControl
	flowAt time.Time
}

// idleFactor is the pause between two reads of the contents of all buckets, in multiples of the
// time of a read, but no longer than longestIdle: one read may wait for a server. Those that
// are due now are read in any case.
const (
	idleFactor  = 20
	longestIdle = 30 * time.Second
)

// aloneAge is how old the server's account of a stream may be that nobody else can write.
// On it depends how soon a worker notices that its server is stuck, or that a message has
// expired.
const aloneAge = 2 * time.Second

// ask reads the server's clock, and whether the stream is another one. A server of this
// process has the same clock, and all that is stored there is written from here. So while
// nothing is, a poll asks once in aloneAge, to find out whether the server answers, and what
// it has removed by itself.
func (s *seen) ask(ctx context.Context) error {
	written := s.Written.Load()
	if s.part.admission.local && written == s.written && s.Age() < aloneAge {
		now := time.Now()
		s.Clock.Read(now, 0, s.ServerTime(now), 0)
		return nil
	}
	if err := s.Clock.Sync(ctx); err != nil {
		return err
	}
	s.written = written
	return nil
}

// look finds out which buckets there are. It uses the earlier reading while the stream is the same
// since, and reads again if the stream is another one, also because it went back.
// That is checked first: the watermark and the buckets are then those of the stream as it
// is now.
func (s *seen) look(ctx context.Context, v *view) (err error) {
	since := s.Since()
	if s.farAt.Before(since) {
		began := time.Now()
		heartbeat := func(ctx context.Context) (stream.Witness, error) { return s.w.writeHeartbeat(ctx, s.buckets) }
		if err := s.LookBack(ctx, heartbeat); err != nil {
			return err
		}
		if err := s.readWatermark(ctx); err != nil {
			return err
		}
		if s.far, err = s.bucketsOf(ctx, "h"); err != nil {
			return err
		}
		s.farAt = began
	}
	if v.all = time.Since(s.viewed) >= min(idleFactor*s.nearTook, longestIdle); v.all && s.nearAt.Before(since) {
		began := time.Now()
		if s.near, err = s.contents(ctx, "q.>"); err != nil {
			return err
		}
		s.nearAt, s.nearTook = began, time.Since(began)
	}
	if v.far = s.far; v.all {
		v.near, s.viewed = s.near, time.Now()
	}
	return nil
}

// tellQueue passes on the time and the revision of the limits and pauses, so that the Queue
// reads neither by a request of its own. They are read once in RetryInterval at most, as the
// Queue would do it. A revision that may be old is not passed on: the Queue reads it by itself then.
func (s *seen) tellQueue(ctx context.Context) {
	if s.w.c.Time != nil {
		s.w.c.Time(s.Clock.Now())
	}
	c := &s.w.c
	if c.Revision == nil {
		return
	}
	since := s.Since()
	if s.flowAt.Before(since) && time.Since(s.flowAt) >= driver.RetryInterval {
		began := time.Now()
		if _, err := s.w.e.FlowControl(ctx); err != nil {
			return // the Queue finds out by itself
		}
		s.flowAt = began
	}
	if s.flowAt.Before(since) {
		return
	}
	known := s.w.e.known.Load()
	if s.flow != known { // of the same revision, maybe: the stream went back
		s.flow = known
		s.w.report(driver.Notice{FlowControl: true})
	}
	c.Revision(s.w.e.lastFlowControl().Revision())
}
