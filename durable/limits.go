package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
	"github.com/tickwheel/tickwheel/durable/internal/recur"
	"github.com/tickwheel/tickwheel/durable/internal/valid"
)

const (
	maxLimits  = 1000 // limits and pauses without an end together: they are one document
	maxEnding  = 1000 // pauses with an end
	maxRunning = 1 << 20
	maxRate    = 1e6
	maxReturn  = 366 * 24 * time.Hour // until all of a burst is there again
)

// SetLimit stores a limit under a name, or changes the limit of that name. It holds in
// all processes together, from the next claim on, until [Queue.DeleteLimit].
//
// A job that waits for a limit takes no handler and no attempt. It begins when another
// job gives back its permit, or when its token comes. The lanes that a limit covers take
// turns. The jobs of one lane begin by Priority, the highest first, then by due time.
// Each worker holds only some jobs of a lane that waits, and hands the others back for a
// while. It fetches at least 500 of these a second again, or all within five minutes, and
// all at once after a change of a limit or a pause, except on NATS those of a worker that
// was killed before. A job that a limit covers is claimed when it begins, and is late by
// a commit. The jobs of a worker that dies keep their permits until its lease has ended,
// and on PostgreSQL for some seconds more.
//
// A limit counts the jobs that begin after it was made. A change keeps the count, unless
// Kind or PerLane differ. If more jobs run than the limit allows, no further job begins
// until enough have ended.
//
// [ErrInvalid]: the name is empty, unprintable or too long; neither Running nor Rate is
// set; Running or Burst is negative; Rate is not a number from 0 to a million; only one of
// Rate and Burst is set; there would be more than 1000 limits and pauses; or the queue is
// on JetStream and has several partitions. [Queue.Pause] stops jobs.
func (q *Queue) SetLimit(ctx context.Context, name string, l Limit) error {
	if err := checkLimit(name, l); err != nil {
		return fmt.Errorf("durable: SetLimit(%.300q): %w", name, err)
	}
	err := q.changeFlowControl(ctx, func(t *flowControl, revision int64) error {
		i, there := t.find(name)
		stored := &driver.StoredLimit{Name: name, ID: revision, Limit: l}
		if !there {
			t.limits = slices.Insert(t.limits, i, stored)
			return nil
		}
		old := t.limits[i]
		if old.Limit == stored.Limit {
			return errUnchanged
		}
		if old.Kind == l.Kind && old.PerLane == l.PerLane {
			stored.ID = old.ID
		}
		t.limits[i] = stored
		return nil
	})
	if err != nil {
		return fmt.Errorf("durable: SetLimit(%.300q): %w", name, err)
	}
	return nil
}

// DeleteLimit removes the limit of a name, and the counts of its jobs. [ErrNotFound]: no
// limit has the name.
func (q *Queue) DeleteLimit(ctx context.Context, name string) error {
	err := q.changeFlowControl(ctx, func(t *flowControl, _ int64) error {
		i, there := t.find(name)
		if !there {
			return ErrNotFound
		}
		t.limits = slices.Delete(t.limits, i, i+1)
		return nil
	})
	if err != nil {
		return fmt.Errorf("durable: DeleteLimit(%.300q): %w", name, err)
	}
	return nil
}

func checkLimit(name string, l Limit) error {
	switch err := valid.OptionalName("the kind", l.Kind, driver.MaxKind); {
	case name == "":
		return fmt.Errorf("%w: the limit's name is empty", ErrInvalid)
	case len(name) > driver.MaxKind || !valid.Printable(name):
		return fmt.Errorf("%w: the limit's name is not printable, of 1 to %d bytes", ErrInvalid, driver.MaxKind)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case l.Running < 0 || l.Running > maxRunning:
		return fmt.Errorf("%w: Running %d is not from 0 to %d", ErrInvalid, l.Running, maxRunning)
	case math.IsNaN(l.Rate) || l.Rate < 0 || l.Rate > maxRate:
		return fmt.Errorf("%w: Rate %v is not from 0 to %v", ErrInvalid, l.Rate, maxRate)
	case l.Burst < 0:
		return fmt.Errorf("%w: Burst %d is negative", ErrInvalid, l.Burst)
	case l.Rate > 0 && l.Burst == 0:
		return fmt.Errorf("%w: Burst is 0, and Rate %v needs at least 1", ErrInvalid, l.Rate)
	case l.Running == 0 && l.Rate == 0:
		return fmt.Errorf("%w: set Running or Rate; Pause stops jobs, and DeleteLimit removes a limit", ErrInvalid)
	case l.Rate == 0 && l.Burst > 0:
		return fmt.Errorf("%w: Burst %d without a Rate", ErrInvalid, l.Burst)
	case l.Rate > 0 && float64(l.Burst)/l.Rate > maxReturn.Seconds():
		return fmt.Errorf("%w: at Rate %v a Burst of %d takes longer than a year to come back", ErrInvalid, l.Rate, l.Burst)
	}
	return nil
}

// errUnchanged: the limits and pauses are already as they are meant to be.
var errUnchanged = errors.New("durable: unchanged")

// flowControl is what a change changes.
type flowControl struct {
	limits []*driver.StoredLimit // by name
	pauses []driver.Pause        // in the order in which they were set
}

// find returns where the limit of a name is, or belongs.
func (t *flowControl) find(name string) (at int, there bool) {
	return slices.BinarySearchFunc(t.limits, name, func(l *driver.StoredLimit, name string) int { return strings.Compare(l.Name, name) })
}

// paused returns the index of the pause of what, or -1.
func (t *flowControl) paused(what Pausable) int {
	return slices.IndexFunc(t.pauses, func(p driver.Pause) bool { return p.Pausable == what })
}

// forgetEnded removes the pauses that have ended, and returns an error if there are too many others.
func (t *flowControl) forgetEnded(now time.Time) error {
	t.pauses = slices.DeleteFunc(t.pauses, func(p driver.Pause) bool { return p.Rest(now) == 0 })
	ending := 0
	for _, p := range t.pauses {
		if !p.Until.IsZero() {
			ending++
		}
	}
	switch {
	case len(t.limits)+len(t.pauses)-ending > maxLimits:
		return fmt.Errorf("%w: there are %d limits and pauses already: remove one first", ErrInvalid, maxLimits)
	case ending > maxEnding:
		return fmt.Errorf("%w: there are %d pauses with an end already", ErrInvalid, maxEnding)
	}
	return nil
}

// changeFlowControl changes the limits and pauses that are stored. If f returns an error, the store confirms that they
// are as f has seen them: what was read may be old. And whoever has stored them may still wait for the end of claims
// that began before.
func (q *Queue) changeFlowControl(ctx context.Context, f func(t *flowControl, revision int64) error) error {
	if q.closed.Err() != nil {
		return ErrClosed
	}
	for range recur.Tries {
		r, err := q.engine.FlowControl(ctx)
		if err != nil {
			return err
		}
		t := flowControl{limits: slices.Clone(r.Limits()), pauses: slices.Clone(r.Pauses())}
		revision := recur.RevisionAfter(r.Revision(), q.clock.Time())
		next := r
		if err = f(&t, revision); err == nil {
			err = t.forgetEnded(q.clock.Time())
		}
		if err == nil {
			next = r.Change(revision, t.limits, t.pauses)
		}
		switch set := q.engine.SetFlowControl(ctx, r.Revision(), next); {
		case set == nil && !errors.Is(err, errUnchanged):
			return err
		case !errors.Is(set, driver.ErrChanged):
			return set
		}
	}
	return fmt.Errorf("%w: gave up after %d conflicting updates of limits and pauses", ErrUncertain, recur.Tries)
}

// Pause stops new attempts of the selected jobs, within a second in all processes, until
// Resume. It is stored. Running handlers go on. A waiting job keeps its time, and its
// order unless a worker hands it back (see [Queue.SetLimit]). The kind or lane need not
// have jobs yet. A second Pause of the same jobs changes nothing. A Pause replaces a PauseFor
// and a Cooldown of the same jobs. [ErrInvalid]: the kind or lane is not valid.
func (q *Queue) Pause(ctx context.Context, what Pausable) error {
	err := checkPausable(what)
	if err == nil {
		err = q.changeFlowControl(ctx, func(t *flowControl, _ int64) error {
			i := t.paused(what)
			switch {
			case i >= 0 && t.pauses[i].Until.IsZero():
				return errUnchanged
			case i >= 0:
				t.pauses = slices.Delete(t.pauses, i, i+1)
			}
			t.pauses = append(t.pauses, driver.Pause{Pausable: what, Since: clock.WholeMicros(q.clock.Time()).UTC()})
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("durable: Pause(%v): %w", what, err)
	}
	return nil
}

func checkPausable(what Pausable) error {
	err := cmp.Or(valid.OptionalName("the kind", what.Kind, driver.MaxKind), valid.OptionalName("the lane", what.Lane, driver.MaxLane))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// Resume ends a Pause, a PauseFor and a [Cooldown] of the same jobs. Another pause that covers the jobs, such
// as that of the whole queue, stays. [ErrNotFound]: no such pause is stored.
func (q *Queue) Resume(ctx context.Context, what Pausable) error {
	err := q.changeFlowControl(ctx, func(t *flowControl, _ int64) error {
		i := t.paused(what)
		if i < 0 || t.pauses[i].Rest(q.clock.Time()) == 0 {
			return ErrNotFound
		}
		t.pauses = slices.Delete(t.pauses, i, i+1)
		return nil
	})
	if err != nil {
		return fmt.Errorf("durable: Resume(%v): %w", what, err)
	}
	return nil
}

// Paused returns the pauses that have not ended, in the order in which they were set: those of Pause,
// PauseFor and [Cooldown].
func (q *Queue) Paused(ctx context.Context) ([]Pause, error) {
	if q.closed.Err() != nil {
		return nil, ErrClosed
	}
	r, err := q.engine.FlowControl(ctx)
	now := q.clock.Time()
	return slices.DeleteFunc(slices.Clone(r.Pauses()), func(p Pause) bool { return p.Rest(now) == 0 }), err
}

// LimitInfo describes a limit and its counts.
type LimitInfo struct {
	Name string
	Limit

	Taken   int       // Jobs that run, in all processes.
	Lanes   int       // For a limit PerLane: lanes in which jobs run, or tokens are missing.
	Waiting int64     // Due jobs that wait for it in this process, if Run is under way.
	Next    time.Time // The time of the next token, the first of all lanes; zero if one is there, or without a Rate.
}

// Limits lists the stored limits, by name. It reads all their counts: a row for each lane
// in which a job runs. An error is the last element.
func (q *Queue) Limits(ctx context.Context) iter.Seq2[LimitInfo, error] {
	return func(yield func(LimitInfo, error) bool) {
		infos, err := q.limitInfos(ctx)
		for _, i := range infos {
			if !yield(i, nil) {
				return
			}
		}
		if err != nil {
			yield(LimitInfo{}, err)
		}
	}
}

func (q *Queue) limitInfos(ctx context.Context) ([]LimitInfo, error) {
	if q.closed.Err() != nil {
		return nil, ErrClosed
	}
	r, err := q.engine.FlowControl(ctx)
	if err != nil {
		return nil, err
	}
	usage, err := q.engine.Usage(ctx)
	if err != nil {
		return nil, err
	}
	waiting := map[string]int64{}
	if w := q.running.Load(); w != nil {
		for _, l := range w.Stats().Limits {
			waiting[l.Name] = l.Waiting
		}
	}
	infos, index, now := make([]LimitInfo, len(r.Limits())), map[int64]int{}, q.clock.Time()
	for i, l := range r.Limits() {
		infos[i] = LimitInfo{Name: l.Name, Limit: l.Limit, Waiting: waiting[l.Name]}
		index[l.ID] = i
	}
	for _, u := range usage {
		i, there := index[u.Limit]
		if !there || u.IsIdle(now) {
			continue
		}
		info := &infos[i]
		info.Taken += u.Taken
		if u.Lane != "" {
			info.Lanes++
		}
		if at := r.Limits()[i].NextToken(&u.Counter, now); at.After(now) && (info.Next.IsZero() || at.Before(info.Next)) {
			info.Next = at
		}
	}
	return infos, nil
}

// CancelRunning requests the end of a job that a worker has claimed, in any process. The
// handler's context ends with [ErrCanceled] as cause, at once or, if a message is lost,
// within a third of the lease. The handler's result decides: with nil the job is done,
// with any error it is canceled. The next occurrence of a schedule follows. A handler that has not begun never begins.
//
// True: the job was claimed, and the request is stored for this claim. If the worker dies, or
// hands the job back, as at the end of its Run, before it has read the request, the job runs
// again. False without an error: it does not run; [Queue.Cancel] ends a waiting job.
// [ErrNotFound]: the Ref is not one of this queue. [ErrUncertain]: call it again.
func (q *Queue) CancelRunning(ctx context.Context, r Ref) (bool, error) {
	if q.closed.Err() != nil {
		return false, ErrClosed
	}
	return q.engine.CancelRunning(ctx, r)
}
