package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// status returns what became of a version of a job.
func (p *part) status(ctx context.Context, at place) (status, error) {
	m, err := p.last(ctx, p.fateSubject(at))
	if errors.Is(err, driver.ErrNotFound) {
		return status{}, nil
	}
	if err != nil {
		return status{}, err
	}
	return decodeStatus(m.Data, m.Seq)
}

// forwarded returns where the newest version is: where f.<id> says, which is written when
// a job is moved, or else where it was stored first. Forwards have no message while a job
// has not been moved. The sequence is that of the message, before which the record is
// not.
func (p *part) forwarded(ctx context.Context, a address) (place, uint64, error) {
	at := place{id: a.id, bucket: a.bucket}
	m, err := p.last(ctx, p.forward(a.id))
	if errors.Is(err, driver.ErrNotFound) || err == nil && len(m.Data) == 0 {
		return at, 0, nil
	}
	if err != nil {
		return at, 0, err
	}
	at, err = parseForward(a.id, m.Data)
	return at, m.Seq, err
}

func parseForward(id string, data []byte) (at place, err error) {
	bucket, version, _ := strings.Cut(string(data), " ")
	at.id = id
	if at.bucket, err = strconv.ParseInt(bucket, 10, 64); err == nil {
		at.version, err = strconv.Atoi(version)
	}
	if err != nil {
		return at, fmt.Errorf("%w: where a job was moved cannot be read: %q", driver.ErrStorage, data)
	}
	return at, nil
}

func (p *part) forwardWrite(r *driver.Record, bucket int64) write {
	return write{subject: p.forward(r.ID), data: fmt.Appendf(nil, "%d %d", bucket, r.Version), rollup: true}
}

// current returns where the newest version of a job is, and its status: final if it has
// ended. Of a job whose bucket is closed nothing is left, and that is done, too.
func (p *part) current(ctx context.Context, a address) (place, status, error) {
	for {
		at, _, err := p.forwarded(ctx, a)
		if err != nil {
			return at, status{}, err
		}
		s, err := p.status(ctx, at)
		if err != nil || s.fate != none && s.fate != moved && s.fate != dead {
			return at, s, err
		}
		if s.fate == none {
			open, err := p.isOpen(ctx, a, at)
			if err != nil || open {
				return at, s, err
			}
		}
		// The forward is written with the status, so it is newer if the job was moved or
		// redriven just now, and gone if it has ended since.
		again, _, err := p.forwarded(ctx, a)
		if err != nil || again == at {
			if s.fate != dead {
				s = status{fate: done}
			}
			return at, s, err
		}
	}
}

// markTTL is for how long it is remembered that a bucket was closed.
const markTTL = 24 * time.Hour

// isOpen reports whether a version that has no status waits: its near bucket has not been
// closed.
func (p *part) isOpen(ctx context.Context, a address, at place) (bool, error) {
	_, err := p.last(ctx, p.nearMark(at.bucket))
	return p.isOpenBy(ctx, a, at, err)
}

// isOpenBy is isOpen with the error of reading the bucket's mark. That says for a day that
// the bucket was closed. After that, and below the floor, where a clock that was set may
// have passed over the mark's time or over the bucket, what counts is whether the job is
// there. That others are in its bucket says nothing: it may have been stored elsewhere,
// and have ended.
func (p *part) isOpenBy(ctx context.Context, a address, at place, err error) (bool, error) {
	if err == nil {
		return false, nil
	}
	if !errors.Is(err, driver.ErrNotFound) {
		return false, err
	}
	if at.bucket > p.lowest().near && p.now().Before(p.closeAt(at.bucket).Add(markTTL/2)) {
		return true, nil
	}
	again, forward, err := p.forwarded(ctx, a)
	if err != nil || again != at {
		return false, err
	}
	_, m, err := p.find(ctx, a, at, forward)
	if err == nil {
		_, err = p.ofLeader(ctx, map[string]any{"seq": m.Seq}) // others may be behind
	} else if errors.Is(err, driver.ErrNotFound) && p.replicas > 1 {
		return p.leaderHas(ctx, at)
	}
	if errors.Is(err, driver.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// leaderHas reports whether the leader has the message of a version. It reads one message of the bucket at a
// time, since only another server, which may be behind, answers for many at once.
func (p *part) leaderHas(ctx context.Context, at place) (bool, error) {
	for _, filter := range p.filtersOf(at.bucket) {
		for from := uint64(1); ; {
			m, err := p.ofLeader(ctx, map[string]any{"next_by_subj": filter, "seq": from})
			if errors.Is(err, driver.ErrNotFound) {
				break
			}
			if err != nil {
				return false, err
			}
			r, err := decode(m.Data)
			if err != nil || r.ID == at.id && r.Version == at.version {
				return err == nil, err
			}
			from = m.Seq + 1
		}
	}
	return false, nil
}

// filtersOf select all messages in which a version of a near bucket may be. The far bucket comes first: a job
// that is being moved is in both before it leaves that.
func (p *part) filtersOf(bucket int64) []string {
	return append([]string{p.farSubject(p.farOf(bucket))}, p.nearFilters(bucket)...)
}

var errStop = errors.New("jetstream: found")

// record finds the body of a version of a job. It was
// stored when it was born, or with the forward to it, so that is where the search begins;
// what was moved from a far bucket is somewhere in the near one after that.
func (p *part) record(ctx context.Context, a address, at place, forward uint64) (driver.Record, error) {
	r, _, err := p.find(ctx, a, at, forward)
	return r, err
}

// find is record, and returns the message, too.
func (p *part) find(ctx context.Context, a address, at place, forward uint64) (driver.Record, stored, error) {
	return p.findIn(ctx, a, at, forward, p.filtersOf(at.bucket)...)
}

// findIn is find among the messages of some filters.
func (p *part) findIn(ctx context.Context, a address, at place, forward uint64, filters ...string) (r driver.Record, found stored, err error) {
	search := func(page []stored) (bool, error) {
		for _, m := range page {
			one, err := decode(m.Data)
			if err != nil {
				return false, err
			}
			if one.ID == at.id && one.Version == at.version {
				r, found = one, m
				return false, nil
			}
		}
		return true, nil
	}
	if at.version > 0 && forward == 0 {
		return r, found, driver.ErrNotFound
	}
	// The sender's idea of the server's clock is good to within its round trip, unless
	// that was set. Then the whole bucket is searched.
	born := time.UnixMicro(a.born)
	for _, since := range []time.Time{born.Add(-50 * time.Millisecond), born.Add(-10 * time.Second), {}} {
		from := forward
		if since.IsZero() {
			from = max(from, 1)
		}
		for _, filter := range filters {
			if err := p.pages(ctx, filter, from, since, search); err != nil {
				return r, found, err
			}
			if found.Seq > 0 {
				return r, found, nil
			}
		}
	}
	return r, found, driver.ErrNotFound
}

// describe returns what is known of a job that is kept.
func (p *part) describe(ctx context.Context, ref driver.Ref, a address) (driver.Info, error) {
	var info driver.Info
	for try := 0; ; try++ {
		if m, err := p.last(ctx, p.deadSubject(a.id)); err == nil && len(m.Data) > 0 {
			return deadInfo(ref, m.Data)
		} else if err != nil && !errors.Is(err, driver.ErrNotFound) {
			return info, err
		}
		at, forward, err := p.forwarded(ctx, a)
		if err != nil {
			return info, err
		}
		s, err := p.status(ctx, at)
		if err != nil {
			return info, err
		}
		r, err := driver.Record{}, driver.ErrNotFound
		if !s.fate.final() {
			r, err = p.record(ctx, a, at, forward)
		}
		if err == nil {
			return infoOf(ref, &r, s), nil
		}
		// Not found where it was: it has ended, died, or was moved meanwhile. Other servers
		// may be a moment behind.
		if !errors.Is(err, driver.ErrNotFound) || try == 3 {
			return info, err
		}
		if try == 0 {
			continue // it may be among the dead now
		}
		if again, _, err := p.forwarded(ctx, a); err != nil || again == at && (s.fate.final() || p.replicas == 1) {
			if err == nil {
				err = driver.ErrNotFound
			}
			return info, err
		}
	}
}

func infoOf(ref driver.Ref, r *driver.Record, s status) driver.Info {
	i := driver.Info{Ref: ref, State: driver.Waiting, Record: *r}
	switch s.fate {
	case claimed:
		i.State, i.Attempt = driver.Running, min(s.attempt, r.MaxAttempts)
	case freed:
		i.Attempt = s.attempt
	}
	return i
}

func deadInfo(ref driver.Ref, data []byte) (driver.Info, error) {
	r, err := decode(data)
	if err != nil {
		return driver.Info{}, err
	}
	return driver.Info{Ref: ref, State: driver.Dead, Record: r}, nil
}

// scan goes over all jobs; false if it was told to stop. While a far bucket is being
// moved its jobs are in it and in their near buckets, so these are remembered.
func (p *part) scan(ctx context.Context, f driver.Filter, yield func(driver.Info, error) bool) bool {
	seen := map[string]bool{}
	visit := func(page []stored) (bool, error) { return p.scanPage(ctx, page, f, seen, yield) }
	for _, filter := range []string{"h.*", "q.>"} {
		if err := p.pages(ctx, p.subject(filter), 1, time.Time{}, visit); err != nil {
			if !errors.Is(err, errStop) {
				yield(driver.Info{}, err)
			}
			return false
		}
	}
	err := p.deadJobs(ctx, func(i driver.Info) bool { return !f.Match(i) || yield(i, nil) })
	if err != nil && !errors.Is(err, errStop) {
		yield(driver.Info{}, err)
	}
	return err == nil
}

// deadJobs calls each for all that are dead. If that returns false the error is errStop.
func (p *part) deadJobs(ctx context.Context, each func(driver.Info) bool) error {
	return p.pages(ctx, p.subject("x.*"), 1, time.Time{}, func(page []stored) (bool, error) {
		for _, m := range page {
			if len(m.Data) == 0 {
				continue
			}
			r, err := decode(m.Data)
			if err != nil {
				return false, err
			}
			info, err := deadInfo(p.refOf(&r), m.Data)
			if err != nil {
				return false, err
			}
			if !each(info) {
				return false, errStop
			}
		}
		return true, nil
	})
}

func (p *part) scanPage(ctx context.Context, page []stored, f driver.Filter, seen map[string]bool, yield func(driver.Info, error) bool) (bool, error) {
	recs := make([]driver.Record, len(page))
	subjects := make([]string, len(page))
	for i, m := range page {
		var err error
		if recs[i], err = decode(m.Data); err != nil {
			return false, err
		}
		subjects[i] = p.fateSubject(p.placeOf(m.Subject, &recs[i]))
	}
	fates, err := p.lasts(ctx, subjects)
	if err != nil {
		return false, err
	}
	now := p.now()
	for i := range recs {
		var s status
		if m, ok := fates[subjects[i]]; ok {
			if s, err = decodeStatus(m.Data, m.Seq); err != nil {
				return false, err
			}
		}
		if far := p.farOf(p.nearOf(recs[i].Due)); far <= p.lowest().far || !now.Before(p.cascadeAt(far)) {
			if seen[subjects[i]] {
				continue
			}
			seen[subjects[i]] = true
		}
		info := infoOf(p.refOf(&recs[i]), &recs[i], s)
		if !s.fate.final() && f.Match(info) && !yield(info, nil) {
			return false, errStop
		}
	}
	return true, nil
}
