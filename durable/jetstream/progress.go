package jetstream

import (
	"context"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// progressSize is how many jobs are read together: lasts reads all of their subjects at one time.
const progressSize = stream.PageSize / 3

// progress returns how far jobs are, at most progressSize of them. It takes one request for all jobs that have not been
// moved, and one for the newest versions of the others. Any server may answer, also one that is behind: an end is for
// ever, so if a job has ended at the time of such a reading, it has ended. A job of which that says too little is read
// alone.
func (fi *finder) progress(ctx context.Context, as []address) ([]driver.Progress, []error) {
	all, errs := make([]driver.Progress, len(as)), make([]error, len(as))
	at, rest := make([]location, len(as)), make([]int, len(as))
	for i, a := range as {
		at[i], rest[i] = location{id: a.id, bucket: a.bucket}, i
	}
	for range 2 {
		var subjects []string
		for _, i := range rest {
			subjects = append(subjects, fi.forward(at[i].id), fi.fateSubject(at[i]), fi.nearMark(at[i].bucket))
		}
		found, err := fi.Lasts(ctx, subjects)
		unknown := rest[:0]
		for _, i := range rest {
			known := false
			if errs[i] = err; err == nil {
				all[i], known, errs[i] = fi.progressIn(found, &at[i])
			}
			if errs[i] == nil && !known {
				unknown = append(unknown, i)
			}
		}
		if rest = unknown; len(rest) == 0 {
			break
		}
	}
	for _, i := range rest {
		all[i], errs[i] = fi.progressOf(ctx, as[i])
	}
	return all, errs
}

// progressIn returns how far a job is by a reading of the version at, if that tells. If a forward says that another
// version is the newest, at becomes that. A closed bucket has no versions that wait, and the forward out of it was
// written before its mark.
func (fi *finder) progressIn(found map[string]stream.Message, at *location) (p driver.Progress, known bool, err error) {
	if m := found[fi.forward(at.id)]; len(m.Data) > 0 {
		newest, err := parseForward(at.id, m.Data)
		if err != nil || newest != *at {
			*at = newest
			return p, false, err
		}
	}
	var s status
	if m := found[fi.fateSubject(*at)]; m.Seq > 0 {
		if s, err = decodeStatus(m.Data, m.Seq); err != nil {
			return p, false, err
		}
	}
	closed := found[fi.nearMark(at.bucket)].Seq > 0
	switch {
	case s.fate == none && !closed:
		return fi.waits(*at), fi.staysMarked(at.bucket), nil
	case s.fate == none: // it may be dead: nothing else is left of its status
		return driver.Progress{State: driver.Dead}, true, nil
	}
	return fi.progressBy(*at, s), s.fate != moved, nil
}

// progressOf returns how far one job is, as Cancel would find it.
func (fi *finder) progressOf(ctx context.Context, a address) (driver.Progress, error) {
	at, forward, s, err := fi.current(ctx, a)
	if err != nil || !s.fate.final() {
		return fi.progressBy(at, s), err
	}
	done, err := fi.ifStands(ctx, reading{fi.forward(a.id): forward, fi.fateSubject(at): s.seq}, nil)
	if err != nil || !done {
		return fi.waits(at), err // until it is read again
	}
	return driver.Progress{State: driver.Dead}, nil
}

func (fi *finder) progressBy(at location, s status) driver.Progress {
	switch s.fate {
	case claimed:
		return driver.Progress{State: driver.Running}
	case done:
		return driver.Progress{State: driver.StateDone} // it may be kept, also if its ID does not say so: see driver.MayRetain
	case canceled:
		return driver.Progress{State: driver.StateCanceled}
	case dead:
		return driver.Progress{State: driver.Dead}
	}
	return fi.waits(at)
}

func (fi *finder) waits(at location) driver.Progress {
	return driver.Progress{State: driver.Waiting, Due: fi.start(at.bucket)}
}
