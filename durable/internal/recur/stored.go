package recur

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/valid"
)

// Stored returns a schedule, as it is stored and decoded. driver.ErrNotFound: no schedule has the name, which the engine has
// confirmed; the first result is that of a deleted one.
func (c *Calendar) Stored(ctx context.Context, name string) (driver.Schedule, *Schedule, error) {
	if !valid.Printable(name) {
		return driver.Schedule{Name: name}, nil, driver.ErrNotFound // and a database might refuse the text
	}
	for range Tries {
		s, err := c.engine.Schedule(ctx, name)
		if s.Name = name; err == nil && s.Definition != "" {
			return s, DecodeSchedule(s.Definition), nil
		}
		if err == nil || errors.Is(err, driver.ErrNotFound) {
			err = cmp.Or(c.Confirm(ctx, s), driver.ErrNotFound)
		}
		if !errors.Is(err, driver.ErrChanged) {
			return s, nil, err
		}
	}
	return driver.Schedule{Name: name}, nil, fmt.Errorf("durable: the schedule %.300q: %w: gave up after %d conflicting updates", name, driver.ErrUncertain, Tries)
}

// Confirm returns nil if a schedule is stored as it was read, and driver.ErrChanged if not: what was read may be old. An
// answer for which nothing is stored rests on it.
func (c *Calendar) Confirm(ctx context.Context, s driver.Schedule) error {
	return c.engine.SetSchedule(ctx, s.Revision, s, nil)
}

// Occurrence returns the occurrence of a schedule that waits or runs; State is 0 if there is none.
func (c *Calendar) Occurrence(ctx context.Context, name string) (driver.Info, error) {
	for range Tries { // one may end between the two questions, and the next be there
		ref, err := c.engine.Lookup(ctx, driver.OccurrenceKey(name))
		if errors.Is(err, driver.ErrNotFound) {
			return driver.Info{}, nil
		}
		if err != nil {
			return driver.Info{}, err
		}
		if info, err := c.engine.Get(ctx, ref); !errors.Is(err, driver.ErrNotFound) {
			return info, err
		}
	}
	return driver.Info{}, fmt.Errorf("durable: the schedule %.300q: %w: gave up, since its occurrences keep ending", name, driver.ErrUncertain)
}

// Waits reports whether an occurrence waits for its first attempt.
func Waits(o *driver.Info) bool { return o.State == driver.Waiting && o.Attempt == 0 }

// RevisionAfter returns the revision of a change: about the time in microseconds. By chance it
// is no other change's that is made at the same time: an engine would take the two for tries
// of one.
func RevisionAfter(was int64, now time.Time) int64 {
	return max(was, now.UnixMicro()) + 1 + rand.Int64N(1<<20)
}

// Store stores a schedule, and with it the occurrence that is to wait. If none waits and mayBegin is
// false, none waits afterwards.
func (c *Calendar) Store(ctx context.Context, s driver.Schedule, p *Schedule, mayBegin bool) error {
	revision, made := RevisionAfter(s.Revision, c.now()), false
	replace := func(last time.Time, waits *driver.Record) (*driver.Record, error) {
		if waits == nil && !mayBegin {
			return nil, nil
		}
		next, err := c.Replacement(s.Name, p, revision, last, waits)
		made = next != nil && next != waits
		return next, err
	}
	if p.Paused {
		replace = nil
	}
	err := c.engine.SetSchedule(ctx, s.Revision, driver.Schedule{Name: s.Name, Definition: p.Encode(), Revision: revision}, replace)
	if err == nil && made {
		c.added.Add(1)
	}
	return err
}

// PutRight plans the next occurrence of each schedule anew, after the engine's clock was ahead.
func (c *Calendar) PutRight(ctx context.Context) error {
	var names []string
	for s, err := range c.engine.Schedules(ctx) {
		if err != nil {
			return err
		}
		names = append(names, s.Name)
	}
	for _, name := range names {
		if err := c.putOneRight(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// putOneRight changes nothing in a schedule whose occurrence was canceled. A change is a new
// revision: so the end of an occurrence that runs is followed by the schedule as it is now, though
// the end may have been made by the wrong clock.
func (c *Calendar) putOneRight(ctx context.Context, name string) error {
	for range Tries {
		s, p, err := c.Stored(ctx, name)
		if errors.Is(err, driver.ErrNotFound) || err == nil && p.Paused {
			return nil
		}
		if err != nil {
			return err
		}
		o, err := c.Occurrence(ctx, name)
		if err != nil || o.State == 0 || Waits(&o) && !c.IsAhead(name, p, s.Last, o.Due) {
			return err
		}
		switch err := c.Store(ctx, s, p, false); {
		case err == nil || errors.Is(err, driver.ErrInvalid): // its spec cannot be read here
			return nil
		case !errors.Is(err, driver.ErrChanged):
			return err
		}
	}
	return nil // others change it
}
