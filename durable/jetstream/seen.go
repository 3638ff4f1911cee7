package jetstream

import (
	"context"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// seen is what polls have read of the stream, each with the time at which that began. It is still so while the stream is
// the same since an earlier time (Stream.Since). So a poll of a stream in which nothing happens is one request.
type seen struct {
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

// aloneAge is how old the server's account of a stream may be that nobody else can write.
const aloneAge = 2 * time.Second

// ask reads the server's clock, and whether the stream is another one. A server of this process has the same clock, and
// all that is stored there is written from here. So while nothing is, a poll asks once in aloneAge, to find out whether
// the server answers, and what it has removed by itself.
func (f *fetcher) ask(ctx context.Context) error {
	written := f.Written.Load()
	if f.part.admission.local && written == f.seen.written && f.Age() < aloneAge {
		now := time.Now()
		f.Clock.Read(now, 0, f.ServerTime(now), 0)
		return nil
	}
	if err := f.Clock.Sync(ctx); err != nil {
		return err
	}
	f.seen.written = written
	return nil
}

// look finds out what buckets there are, by what was read before if the stream is the same since. A poll reads it again in
// which the stream is another one, also for having gone back.
func (f *fetcher) look(ctx context.Context, v *view) (err error) {
	s, since := &f.seen, f.Since()
	if s.farAt.Before(since) {
		began := time.Now()
		heartbeat := func(ctx context.Context) (stream.Witness, error) { return f.w.writeHeartbeat(ctx, f.buckets) }
		if err := f.LookBack(ctx, heartbeat); err != nil {
			return err
		}
		if err := f.readWatermark(ctx); err != nil {
			return err
		}
		if s.far, err = f.bucketsOf(ctx, "h"); err != nil {
			return err
		}
		s.farAt = began
	}
	if v.all = time.Since(s.viewed) >= min(idleFactor*s.nearTook, longestIdle); v.all && s.nearAt.Before(since) {
		began := time.Now()
		if s.near, err = f.contents(ctx, "q.>"); err != nil {
			return err
		}
		s.nearAt, s.nearTook = began, time.Since(began)
	}
	if v.far = s.far; v.all {
		v.near, s.viewed = s.near, time.Now()
	}
	return nil
}

// tellQueue passes on the time and the revision of the limits and pauses, so that the Queue reads neither by a request of
// its own. They are read once in RetryInterval at most, as the Queue would do it.
func (f *fetcher) tellQueue(ctx context.Context) {
	if f.w.c.Time != nil {
		f.w.c.Time(f.Clock.Now())
	}
	s, c := &f.seen, &f.w.c
	if c.Revision == nil {
		return
	}
	since := f.Since()
	if s.flowAt.Before(since) && time.Since(s.flowAt) >= driver.RetryInterval {
		began := time.Now()
		if _, err := f.w.e.FlowControl(ctx); err != nil {
			return // the Queue finds out by itself
		}
		s.flowAt = began
	}
	if s.flowAt.Before(since) {
		return
	}
	known := f.w.e.known.Load()
	if s.flow != known { // of the same revision, maybe: the stream went back
		s.flow = known
		f.w.report(driver.Notice{FlowControl: true})
	}
	c.Revision(f.w.e.lastFlowControl().Revision())
}
