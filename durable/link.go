package durable

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
	"github.com/tickwheel/tickwheel/durable/internal/recur"
	"github.com/tickwheel/tickwheel/durable/internal/worker"
	"github.com/tickwheel/tickwheel/internal/wallclock"
)

// syncEvery is how often the engine's clock is read: clocks that drift apart are taken to
// be 50 us apart after that, which makes jobs late by as much.
const syncEvery = 500 * time.Millisecond

// newsFor is how long a time counts that a poll has read: polls are up to 800 ms apart.
const newsFor = 1600 * time.Millisecond

// link is the way of a Queue to its engine: the clock as it was last read, the schedules that go by it, and the
// contexts of requests. The clock is followed until Close; whenever it was ahead, the schedules are put right. Its
// fields do not change after Open. It adds and runs no job.
type link struct {
	log      *slog.Logger
	engine   driver.Engine
	clock    *clock.Clock // that of the engine
	manual   bool         // it is set by hand
	calendar *recur.Calendar

	closed   context.Context // ends with Close
	close    context.CancelCauseFunc
	requests context.Context // of requests by the Queue itself; ends closeTimeout after closed
	hangUp   context.CancelCauseFunc
	wg       sync.WaitGroup // what Close waits for
}

// readClock reads the engine's clock for the first time. That of package memory may be set
// by hand: it is asked each time, since it moves between any two looks.
func (l *link) readClock(ctx context.Context) (err error) {
	if m, ok := l.engine.(interface{ Manual() func() time.Time }); ok {
		if now := m.Manual(); now != nil {
			l.clock, l.manual = clock.Exact(now), true
			_, _, err = l.engine.Now(ctx)
			return err
		}
	}
	l.clock, err = clock.New(ctx, l.engine.Now)
	return err
}

// syncClock reads the engine's clock. It does not if the polls of the worker have read it, unless it must
// since this machine may have slept after that.
func (l *link) syncClock(ask bool) error {
	if !ask && l.clock.ToldWithin(newsFor) {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.closed, 2*time.Second)
	defer cancel()
	return l.clock.Sync(ctx)
}

// followClock reads the engine's clock until Close, and says when that was set. It does so at
// once when this machine resumes: the clock that counts the time since the last reading has
// stood still.
func (l *link) followClock() {
	t := time.NewTicker(syncEvery)
	defer t.Stop()
	resumed := make(chan struct{}, 1)
	stop, err := wallclock.Watch(func(error) {
		select {
		case resumed <- struct{}{}:
		default:
		}
	})
	news := l.clock.News()
	if err == nil {
		defer stop()
	} else {
		news = nil
	}
	seen, seenAt := l.clock.Time(), time.Now()
	var silent time.Time // since when the clock cannot be read; zero: it can
	var said worker.Rarely
	for logged := int64(0); ; {
		ask := err != nil // then a resumption is not noticed
		select {
		case <-l.closed.Done():
			return
		case <-t.C:
			t.Reset(syncEvery)
		case <-news: // in the wake-up of the poll that has read the time
			t.Reset(newsFor)
		case <-resumed:
			ask = true
		}
		began := time.Now()
		err := l.syncClock(ask)
		switch {
		case l.closed.Err() != nil:
			return
		case err != nil:
			if silent.IsZero() {
				silent = began
			}
			if said.Now() {
				l.log.Warn("durable: cannot read the engine's clock", "error", err, "silent", time.Since(silent))
			}
			if worker.ForGood(err) {
				return
			}
		case !silent.IsZero():
			l.log.Warn("durable: the engine's clock can be read again", "silent", time.Since(silent))
			silent, said = time.Time{}, worker.Rarely{}
		}
		now, at := l.clock.Time(), time.Now()
		expected := seen.Add(at.Sub(seenAt))
		if from := l.clock.SetBackFrom(); from.After(expected) { // a poll has read one time, and then another
			expected = from
		}
		if l.calendar.Saw(now, expected) {
			l.wg.Go(l.putRight) // the clock is read meanwhile
		}
		seen, seenAt = now, at
		if step := l.clock.Step(); step.Count > logged {
			logged = step.Count
			l.log.Warn("durable: the engine's clock was set, or another server answers, or this process stood still",
				"by", step.By.Round(time.Millisecond))
		}
	}
}

// clockWasSet takes a step of a clock that is set by hand.
func (l *link) clockWasSet(was, now time.Time) {
	if l.calendar.Saw(now, was) {
		l.putRight()
	}
}

// putRight plans the next occurrence of each schedule anew, since the engine's clock was ahead.
// Each Queue does that: the first one to change a schedule makes it right for the others. It ends
// with Close.
func (l *link) putRight() {
	var said worker.Rarely
	for l.closed.Err() == nil {
		err := l.calendar.PutRight(l.closed)
		if err == nil || worker.ForGood(err) {
			return
		}
		if said.Now() && l.closed.Err() == nil {
			l.log.Warn("durable: cannot read a schedule; trying again", "name", "", "error", err)
		}
		select {
		case <-l.closed.Done():
		case <-time.After(driver.RetryInterval):
		}
	}
}
