package jetstream

import (
	"context"
	"slices"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// progressSize is how many jobs are read together: lasts reads all of their subjects at one time.
const progressSize = stream.PageSize / 3

// progress returns how far jobs are, at most progressSize of them. It takes one request for all
// jobs that have not been moved, and one for the newest versions of the others. Any server may
// answer, also one that is behind: an end is for ever, so if a job has ended at the time of such a
// reading, it has ended. A job of which that says too little is read alone.
//
// So progressSize jobs that are awaited cost as much as one, and the leader is not asked. A job
// that is said to wait or run may have ended just now: the caller polls, and needs no more. If a
// request fails, all jobs of it have its error, and those that were known before keep their
// answers.
func (fi *finder) progress(ctx context.Context, as []address) ([]driver.Progress, []error) {
	all, errs := make([]driver.Progress, len(as)), make([]error, len(as))
	if err := fi.knowWatermark(ctx); err != nil {
		return all, slices.Repeat([]error{err}, len(as))
	}
	at, rest := make([]location, len(as)), make([]int, len(as))
	for i, a := range as {
		at[i], rest[i] = location{id: a.id, bucket: a.bucket}, i
	}
	for range 2 {
		var subjects []string
		for _, i := range rest {
			subjects = append(subjects, fi.forward(at[i].id), fi.statusSubject(at[i]), fi.nearMark(at[i].bucket))
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
		rest = unknown // without any, Lasts makes no request
	}
	for _, i := range rest {
		all[i], errs[i] = fi.progressOf(ctx, as[i])
	}
	return all, errs
}

// progressIn returns how far a job is by a reading of the version at, if that tells. If a forward
// says that another version is the newest, at becomes that. No version waits in a closed bucket,
// and the forward out of it was written before its mark.
//
// It does not tell in two cases: another version is the newest, whose status is to be read first;
// or there is neither a status nor a mark, in a bucket so old that its mark may have lapsed
// (staysMarked).
func (fi *finder) progressIn(found map[string]stream.Message, at *location) (p driver.Progress, known bool, err error) {
	if m := found[fi.forward(at.id)]; len(m.Data) > 0 {
		newest, err := parseForward(at.id, m.Data)
		if err != nil || newest != *at {
			*at = newest
			return p, false, err
		}
	}
	var s status
	if m := found[fi.statusSubject(*at)]; m.Seq > 0 {
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

// progressOf returns how far one job is, as Cancel would find it: of the leader, and if it has
// ended, with a witness. That costs several requests, and on several replicas a commit, so it is
// for the few that are left. If the reading does not stand, the job counts as one that waits, and
// the next poll reads it again: to say too early that it has ended could not be taken back.
func (fi *finder) progressOf(ctx context.Context, a address) (driver.Progress, error) {
	at, forward, s, err := fi.current(ctx, a)
	if err != nil || !s.fate.final() {
		return fi.progressBy(at, s), err
	}
	done, err := fi.ifStands(ctx, reading{fi.forward(a.id): forward, fi.statusSubject(at): s.seq}, nil)
	if err != nil || !done {
		return fi.waits(at), err // until it is read again
	}
	return driver.Progress{State: driver.Dead}, nil
}

// stateOf has the states of the fates that say all. A job that is done may be kept, also if its ID
// does not say so: see driver.MayRetain.
var stateOf = map[fate]driver.State{
	claimed: driver.Running, done: driver.StateDone, canceled: driver.StateCanceled, dead: driver.Dead,
}

// progressBy is how far a job is by the status of its newest version.
func (fi *finder) progressBy(at location, s status) driver.Progress {
	if state, known := stateOf[s.fate]; known {
		return driver.Progress{State: state}
	}
	return fi.waits(at)
}

// waits says that a job waits until its bucket begins, which may be some seconds before it is due:
// its record has the time, and reading that would cost a request for each job.
func (fi *finder) waits(at location) driver.Progress {
	return driver.Progress{State: driver.Waiting, Due: fi.start(at.bucket)}
}
