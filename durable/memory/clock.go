// Package memory keeps durable jobs in memory, on a clock that is set by hand: it is for the
// tests of programs that use package durable. "Three days later" takes them some hundred
// microseconds. It survives nothing, so it is of no other use.
//
//	clock := memory.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
//	q, err := durable.Open(ctx, memory.New(clock).Open())
//	q.Handle("remind", remind)
//	go q.Run(ctx)
//	_, err = q.Add(ctx, durable.Job{Kind: "remind", After: 72 * time.Hour})
//	err = clock.Advance(ctx, 72*time.Hour) // the reminder has run when it returns
//
// The clock governs due times, expiry, backoff, schedules, retention, the Rate of limits and
// the ends of pauses. A job's Timeout and the worker's lease pass in real time.
//
// Stores with no clock work in a testing/synctest bubble, by its time. There all of a Queue
// runs by the bubble's clock, its timers and its heartbeats, so three days are some hundred
// thousand wake-ups.
package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	micros "github.com/tickwheel/tickwheel/durable/internal/clock"
)

// Clock is a clock that stands still until it is set. Several Stores may have one. All
// methods are safe for concurrent use. Handlers may call all of them except Advance,
// which would wait for its own handler.
type Clock struct {
	turn sync.Mutex // of Advance

	mu     sync.Mutex
	now    time.Time
	stores []*Store
	queues map[*func(was, now time.Time)]struct{} // notified of each step, without the lock
}

// NewClock returns a Clock that is set to a time, rounded up to whole microseconds: so are the times
// of jobs, and a job that is added without a time is due at once.
func NewClock(t time.Time) *Clock { return &Clock{now: micros.WholeMicros(t)} }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Set sets the clock, forward or back, to a time that is rounded up as by NewClock. It waits for no
// job. Jobs that the clock passes over are due. If it goes back by more than 90 minutes, the next
// occurrences of schedules are stored anew before Set returns. The tokens of a Rate are then as far
// off as before.
func (c *Clock) Set(t time.Time) {
	t = micros.WholeMicros(t)
	c.mu.Lock()
	was := c.now
	c.now = t
	stores, queues := c.stores, slices.Collect(maps.Keys(c.queues))
	c.mu.Unlock()
	for _, m := range stores {
		m.mu.Lock()
		if t.Before(was) {
			m.setBack(was, t)
		}
		m.recall()
		m.mu.Unlock()
	}
	for _, f := range queues {
		(*f)(was, t)
	}
}

// notify makes Set call f, until stop is called.
func (c *Clock) notify(f func(was, now time.Time)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queues == nil {
		c.queues = map[*func(was, now time.Time)]struct{}{}
	}
	c.queues[&f] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.queues, &f)
	}
}

// add has a Store be told when the clock is set.
func (c *Clock) add(m *Store) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stores = append(c.stores[:len(c.stores):len(c.stores)], m)
}

// Advance moves the clock by d, rounded up as by NewClock, from one due time to the next, and waits
// at each until the due jobs are done, dead, or due later. So a retry, or the next occurrence of a
// schedule, comes at its own time, too. With 0 it waits for the jobs that are due now.
//
// If ctx ends first, Advance returns an error that wraps its cause and names a due job:
// its kind has no handler or is paused without an end, or its handler does not return. The clock then
// keeps its time. Use [Clock.Set] in tests of such jobs. Advance panics if d is negative.
func (c *Clock) Advance(ctx context.Context, d time.Duration) error {
	if d < 0 {
		panic(fmt.Sprintf("memory: Advance(%v): negative", d))
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	for to := c.Now().Add(d); ; {
		if err := c.settle(ctx); err != nil {
			return err
		}
		next := c.next(to)
		if !next.After(c.Now()) {
			return nil
		}
		c.Set(next)
	}
}

// next returns when the next job is due, or has the token that it waits for, or goes on after a pause, or to if that is earlier.
func (c *Clock) next(to time.Time) time.Time {
	c.mu.Lock()
	now, stores := c.now, c.stores
	c.mu.Unlock()
	for _, m := range stores {
		m.mu.Lock()
		for _, j := range m.jobs {
			if !m.waits(j) {
				continue
			}
			at := j.rec.Due
			if !at.After(now) {
				at = m.token(j, now)
			}
			if at.After(now) && at.Before(to) {
				to = at
			}
		}
		m.mu.Unlock()
	}
	return to
}

// settle waits until nothing is due. A job that ends in one store may add to another, so all are
// looked at once more after a wait.
func (c *Clock) settle(ctx context.Context) error {
	c.mu.Lock()
	stores := c.stores
	c.mu.Unlock()
	for waited := true; waited; {
		waited = false
		for _, m := range stores {
			for {
				late, ended := m.due()
				if late == nil {
					break
				}
				waited = true
				select {
				case <-ended:
				case <-ctx.Done():
					return fmt.Errorf("memory: Advance: a job of the kind %q, due at %v, has not ended: %w",
						late.rec.Kind, late.rec.Due, context.Cause(ctx))
				}
			}
		}
	}
	return nil
}

// due returns a job that is due and has not ended, if there is one, and what is closed when
// one ends. A job that waits for a token of a limit's Rate, or for the end of a pause, is due when that comes.
func (m *Store) due() (*entry, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for _, j := range m.jobs {
		due := !j.rec.Due.After(now)
		if m.waits(j) {
			due = due && !m.token(j, now).After(now)
		} else if j.state != driver.Running {
			due = false
		}
		if due {
			return &entry{rec: j.rec}, m.ended
		}
	}
	return nil, nil
}

// waits reports whether a job waits to be claimed: the worker that has claimed it may have died.
// m.mu is held.
func (m *Store) waits(j *entry) bool {
	return j.state == driver.Waiting || j.state == driver.Running && m.lease(j.by) <= 0
}
