package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// finder reads jobs: where the newest version of one is, its record, and what became of it.
// It writes nothing, and has no state of its own. An answer was true when it was read; the
// conditions of a write tell whether it still is.
//
// A job has no index but its messages. Its ID names the forward and the statuses, which one
// replica returns in one request; its record is searched for in a bucket, which takes more.
// So no decision reads the record if the status is enough.
type finder struct{ *buckets }

// status returns what became of a version of a job: the zero status if there is no message,
// and so nothing has become of it yet, or its bucket is closed. Only the mark tells these
// two apart (current).
func (fi *finder) status(ctx context.Context, at location) (status, error) {
	return fi.statusBy(at, fi.LastNow(ctx))
}

// statusBy is status by the result of last, which may have been read before.
func (fi *finder) statusBy(at location, last stream.LastRead) (status, error) {
	m, err := last(fi.statusSubject(at))
	if err != nil || m.Seq == 0 {
		return status{}, err
	}
	return decodeStatus(m.Data, m.Seq)
}

// forwarded returns where the newest version is: where f.<id> says, which is written when
// a job is moved, or else where it was stored first. Forwards have no message while a job
// has not been moved. The sequence is that of the message, before which the record is
// not.
func (fi *finder) forwarded(ctx context.Context, a address) (location, uint64, error) {
	return fi.forwardedBy(a, fi.LastNow(ctx))
}

// forwardedBy is forwarded, with the forward that last returns. A job that was moved and has
// ended has a tombstone there, or nothing. Then this is its first version, whose status says that
// it was moved until its bucket is closed.
func (fi *finder) forwardedBy(a address, last stream.LastRead) (location, uint64, error) {
	m, err := last(fi.forward(a.id))
	if err != nil || len(m.Data) == 0 {
		return location{id: a.id, bucket: a.bucket}, 0, err
	}
	at, err := parseForward(a.id, m.Data)
	return at, m.Seq, err
}

// parseForward reads the text of a forward. Empty texts are tombstones, and not for it.
func parseForward(id string, data []byte) (at location, err error) {
	bucket, version, _ := strings.Cut(string(data), " ")
	at.id = id
	if at.bucket, err = strconv.ParseInt(bucket, 10, 64); err == nil {
		at.version, err = strconv.Atoi(version)
	}
	if err != nil {
		return at, fmt.Errorf("%w: cannot read where a job was moved: %q", driver.ErrStorage, data)
	}
	return at, nil
}

// current returns where the newest version of a job is, the sequence of the forward to it, and its
// status: final if it has ended. A job whose bucket is closed has left nothing, and counts
// as done, too.
//
// On one replica a job that was never moved costs one request: forward, status and mark at
// once. With several replicas each is a question to the leader, one after the other. A version that is
// found moved without a newer forward, twice, has ended since: its end took the forward
// away.
func (fi *finder) current(ctx context.Context, a address) (location, uint64, status, error) {
	first := location{id: a.id, bucket: a.bucket}
	if err := fi.knowWatermark(ctx); err != nil {
		return first, 0, status{}, err
	}
	last, err := fi.LastOf(ctx, fi.forward(a.id), fi.statusSubject(first), fi.nearMark(a.bucket))
	if err != nil {
		return first, 0, status{}, err
	}
	for {
		at, forward, err := fi.forwardedBy(a, last)
		if err != nil {
			return at, forward, status{}, err
		}
		s, err := fi.statusBy(at, last)
		if err != nil || s.fate != none && s.fate != moved && s.fate != dead {
			return at, forward, s, err
		}
		if s.fate == none {
			mark, err := last(fi.nearMark(at.bucket))
			if err != nil {
				return at, forward, s, err
			}
			if open, err := fi.isOpenBy(ctx, a, at, forward, mark); err != nil || open {
				return at, forward, s, err
			}
		}
		// The forward is written with the status, so it is newer if the job was moved or
		// redriven just now, and gone if it has ended since.
		last = fi.LastNow(ctx)
		again, _, err := fi.forwardedBy(a, last)
		if err != nil || again == at {
			if s.fate != dead {
				s = status{fate: done, seq: s.seq} // so that a reading can be compared
			}
			return at, forward, s, err
		}
	}
}

// isOpenBy reports whether a version that has no status waits, by the mark of its near
// bucket, which says for a day that the bucket was closed. After that, and below the
// watermark, where a clock that was set may have passed over the mark's time or over the
// bucket, what counts is whether the job is there. That others are in its bucket says
// nothing: it may have been stored elsewhere, and have ended.
//
// Mostly it costs nothing. Below the watermark it searches the bucket, and asks the leader
// for the very message that was found: another server may still have it.
func (fi *finder) isOpenBy(ctx context.Context, a address, at location, forward uint64, mark stream.Message) (bool, error) {
	if mark.Seq > 0 {
		return false, nil
	}
	if fi.staysMarked(at.bucket) {
		return true, nil
	}
	_, m, err := fi.find(ctx, a, at, forward)
	if err == nil {
		m, err = fi.OfLeader(ctx, map[string]any{"seq": m.Seq}) // others may be behind
	} else if errors.Is(err, driver.ErrNotFound) && fi.Replicas() > 1 {
		return fi.leaderHas(ctx, at)
	}
	if errors.Is(err, driver.ErrNotFound) {
		return false, nil
	}
	return m.Seq > 0, err
}

// staysMarked reports whether a bucket would have its mark, had it been closed. Half of the
// life of a mark is the margin for clocks that differ.
func (fi *finder) staysMarked(bucket int64) bool {
	return bucket > fi.lowest().near && fi.Now().Before(fi.closeAt(bucket).Add(markTTL/2))
}

// leaderHas reports whether the leader has the message of a version. It reads one message
// of the bucket at a time, since only another server, which may be behind, answers for many
// at once. It is for a job that no other server has, in a bucket that may be closed, and so
// for hardly any.
func (fi *finder) leaderHas(ctx context.Context, at location) (bool, error) {
	for _, filter := range fi.filtersOf(at.bucket) {
		for from := uint64(1); ; {
			m, err := fi.OfLeader(ctx, map[string]any{"next_by_subj": filter, "seq": from})
			if err != nil {
				return false, err
			}
			if m.Seq == 0 {
				break
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

// find finds the message of a version of a job, and what it says. It was
// stored when it was born, or with the forward to it, so that is where the search begins;
// what was moved from a far bucket is somewhere in the near one after that.
//
// A record that is not found is ErrNotFound, which says little: the job may have ended, be
// on its way to its near bucket, or be missing on the server that has answered. Callers
// read its status again.
func (fi *finder) find(ctx context.Context, a address, at location, forward uint64) (driver.Record, stream.Message, error) {
	if forward > 0 { // they are written together
		if r, m, err := fi.versionAt(ctx, forward+1, at); err != nil || m.Seq > 0 {
			return r, m, err
		}
	}
	return fi.findIn(ctx, a, at, forward, fi.filtersOf(at.bucket)...)
}

// versionAt returns the message with a sequence, if it is that of a version, and else the
// zero Message. The sequence is a guess from the order of a commit. After a stream went
// back, or on a server that is behind, another message may have it.
func (fi *finder) versionAt(ctx context.Context, n uint64, at location) (r driver.Record, m stream.Message, err error) {
	m, err = fi.Directly(ctx, "", fmt.Appendf(nil, `{"seq": %d}`, n))
	b, _, near := fi.parseNear(m.Subject)
	if err != nil || m.Subject != fi.farSubject(fi.farOf(at.bucket)) && !(near && b == at.bucket) {
		return r, stream.Message{}, err
	}
	if r, err = decode(m.Data); err != nil || r.ID != at.id || r.Version != at.version {
		return r, stream.Message{}, err
	}
	return r, m, nil
}

// findIn is find among the messages of some filters, in their order. The search begins at
// the forward, or else shortly before the job was born: that is mostly one request. The
// whole bucket is read only if the clock of the sender was wrong.
func (fi *finder) findIn(ctx context.Context, a address, at location, forward uint64, filters ...string) (r driver.Record, found stream.Message, err error) {
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
			for page, err := range fi.Pages(ctx, filter, from, since) {
				for _, m := range page {
					if r, err = decode(m.Data); err != nil {
						break
					}
					if r.ID == at.id && r.Version == at.version {
						return r, m, nil
					}
				}
				if err != nil {
					return r, found, err
				}
			}
		}
	}
	return r, found, driver.ErrNotFound
}

// describe returns what is known of a job that is kept. It reads what is kept of ended jobs
// first, then the forward, the status and the record. Between these the job may move on. So
// before it says ErrNotFound it begins anew, up to three times, and compares the forward
// with the earlier one. A job that waits costs four requests or more, so Get is for single
// jobs; Progress reads many.
func (fi *finder) describe(ctx context.Context, ref driver.Ref, a address) (driver.Info, error) {
	var info driver.Info
	for try := 0; ; try++ {
		kept, err := fi.Last(ctx, fi.deadSubject(a.id))
		if err != nil {
			return info, err
		}
		if len(kept.Data) > 0 {
			r, err := decode(kept.Data)
			if err != nil {
				return info, err
			}
			return r.Info(ref, driver.Dead), nil
		}
		at, forward, err := fi.forwarded(ctx, a)
		if err != nil {
			return info, err
		}
		s, err := fi.status(ctx, at)
		if err != nil {
			return info, err
		}
		r, err := driver.Record{}, driver.ErrNotFound
		if !s.fate.final() {
			r, _, err = fi.find(ctx, a, at, forward)
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
		if again, _, err := fi.forwarded(ctx, a); err != nil || again == at && (s.fate.final() || fi.Replicas() == 1) {
			return info, cmp.Or(err, driver.ErrNotFound)
		}
	}
}

// infoOf returns what users see of a job that waits or runs. Attempt is that of the status,
// if there is one: the record has what it had when it was stored.
func infoOf(ref driver.Ref, r *driver.Record, s status) driver.Info {
	i := r.Info(ref, driver.Waiting)
	switch s.fate {
	case claimed:
		i.State, i.Attempt, i.Worker = driver.Running, min(s.attempt, r.MaxAttempts), s.worker
	case freed:
		i.Attempt = s.attempt
	}
	return i
}

// mostPasses bounds a scan of jobs that never rest.
const mostPasses = 20

// scan yields all jobs that match. A job may be moved from a part that is still to be read to one
// that was read already: from a near bucket to a far one, or from the dead to a bucket. Then its
// new message is newer than the begin of that pass, so another pass reads what came since.
// The scan ends when nothing has moved, or when two passes one after the other have found
// only what moves all the time and was listed.
//
// The first pass yields all that matches; the passes after it only jobs that have moved,
// each once more at most. It keeps their Refs, and the locations of jobs that were in a
// bucket while it was moved, but no job. One pass costs a request for each page of jobs and
// one for their statuses.
func (fi *finder) scan(ctx context.Context, f driver.Filter) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		again, quiet := map[driver.Ref]bool{}, 0
		for from, pass := uint64(1), 0; pass < mostPasses; pass++ {
			before, err := fi.Info(ctx, fi.subject("v.*"))
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
			moved, unlisted := false, false
			late := func(i driver.Info, version int) bool { // reports whether it may have been left out
				if pass == 0 {
					return f.Match(i)
				}
				if version == 0 && !i.Ended() {
					return false // it was added meanwhile
				}
				is := !again[i.Ref]
				moved, unlisted, again[i.Ref] = true, unlisted || is, true
				return is && f.Match(i)
			}
			for _, jobs := range []iter.Seq2[found, error]{
				fi.keptIn(ctx, span{from, before.Last}, map[location]bool{}, fi.subject("h.*"), fi.subject("q.>")), fi.deadIn(ctx, span{from, before.Last}),
			} {
				for j, err := range jobs {
					if err != nil {
						yield(driver.Info{}, err)
						return
					}
					if late(j.info, j.version) && !yield(j.info, nil) {
						return
					}
				}
			}
			if quiet++; unlisted || pass == 0 {
				quiet = 0
			}
			if pass > 0 && !moved || quiet == 2 {
				return
			}
			from = before.Last + 1
		}
	}
}

// span is of the stream's sequences, both ends included. To read up to what comes while it is read
// might never end.
type span struct{ from, upTo uint64 }

var everything = span{1, math.MaxUint64}

// pagesIn is Pages in a span: the page in which the span ends is cut, and is the last
// request.
func (fi *finder) pagesIn(ctx context.Context, filter string, in span) iter.Seq2[[]stream.Message, error] {
	return func(yield func([]stream.Message, error) bool) {
		for page, err := range fi.Pages(ctx, filter, in.from, time.Time{}) {
			n := sort.Search(len(page), func(i int) bool { return page[i].Seq > in.upTo })
			if err == nil && n == 0 || !yield(page[:n], err) || n < len(page) {
				return
			}
		}
	}
}

// found is a job that a listing has found, and which version of it.
type found struct {
	info    driver.Info
	version int
}

// matching yields those that match, and the first error, which is the last element.
func matching(f driver.Filter, jobs iter.Seq2[found, error]) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		for j, err := range jobs {
			if (err != nil || f.Match(j.info)) && !yield(j.info, err) || err != nil {
				return
			}
		}
	}
}

// deadIn yields the jobs in a span that have ended and are kept. Tombstones of those that
// were deleted or redriven are passed over. One that cannot be read is an error, and ends
// it: to leave it out would hide it from an operator who could delete it.
func (fi *finder) deadIn(ctx context.Context, in span) iter.Seq2[found, error] {
	return func(yield func(found, error) bool) {
		for page, err := range fi.pagesIn(ctx, fi.subject("x.*"), in) {
			for _, m := range page {
				if len(m.Data) == 0 {
					continue
				}
				var r driver.Record
				if r, err = decode(m.Data); err != nil {
					break
				}
				if !yield(found{r.Info(fi.refOf(&r), driver.Dead), r.Version}, nil) {
					return
				}
			}
			if err != nil {
				yield(found{}, err)
				return
			}
		}
	}
}

// keptIn yields the jobs of some filters that wait or run, in a span. While a far bucket is
// being moved its jobs are in it and in their near buckets, so these are remembered in
// seen.
//
// Only jobs whose far bucket is being moved, or was, are remembered, so a listing of
// millions of jobs that are due later takes no memory for them. Jobs that have ended
// are read, too, since the bucket is closed as a whole: a status is the only sign.
func (fi *finder) keptIn(ctx context.Context, in span, seen map[location]bool, filters ...string) iter.Seq2[found, error] {
	return func(yield func(found, error) bool) {
		for v, err := range fi.versionsIn(ctx, in, filters...) {
			if err != nil {
				yield(found{}, err)
				return
			}
			if far := fi.farOf(fi.nearOf(v.r.Due)); far <= fi.lowest().far || !fi.Now().Before(fi.cascadeAt(far)) {
				if seen[v.at] {
					continue
				}
				seen[v.at] = true
			}
			if !v.s.fate.final() && !yield(found{infoOf(fi.refOf(&v.r), &v.r, v.s), v.r.Version}, nil) {
				return
			}
		}
	}
}

// version is a version of a job, where it was read, and what became of it. The status may
// be newer than the message, which was read before it.
type version struct {
	r   driver.Record
	seq uint64
	at  location
	s   status
}

// versions yields those that are stored under some filters, one filter after the other,
// each in the stream's order. A caller that stops early leaves the next page unread.
func (fi *finder) versions(ctx context.Context, filters ...string) iter.Seq2[version, error] {
	return fi.versionsIn(ctx, everything, filters...)
}

// versionsIn is versions in a span. A page whose statuses cannot be read is an error:
// nobody would know which of its jobs wait.
func (fi *finder) versionsIn(ctx context.Context, in span, filters ...string) iter.Seq2[version, error] {
	return func(yield func(version, error) bool) {
		for _, filter := range filters {
			for page, err := range fi.pagesIn(ctx, filter, in) {
				var all []version
				if err == nil {
					all, err = fi.versionsOf(ctx, page)
				}
				if err != nil {
					yield(version{}, err)
					return
				}
				for _, v := range all {
					if !yield(v, nil) {
						return
					}
				}
			}
		}
	}
}

// versionsOf returns those of a page.
//
// It reads the statuses of all of them in one request. A server that is behind may miss
// a new status, so a job that is shown as waiting may be claimed. A final status stays so.
func (fi *finder) versionsOf(ctx context.Context, page []stream.Message) ([]version, error) {
	all, subjects := make([]version, len(page)), make([]string, len(page))
	for i, m := range page {
		r, err := decode(m.Data)
		if err != nil {
			return nil, err
		}
		all[i] = version{r: r, seq: m.Seq, at: fi.locationOf(m.Subject, &r)}
		subjects[i] = fi.statusSubject(all[i].at)
	}
	found, err := fi.Lasts(ctx, subjects)
	if err != nil {
		return nil, err
	}
	for i, s := range subjects {
		if m, ok := found[s]; ok {
			if all[i].s, err = decodeStatus(m.Data, m.Seq); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// maxReads is how many jobs at once read what they depend on.
const maxReads = 64

// inParallel calls f for each element, maxReads at a time, and returns after the last. A
// goroutine costs less than a request, and a thousand requests one after the other as long
// as a thousand round trips. It has no error: f notes its own, under a lock if several
// share it.
func inParallel[T any](all []T, f func(T)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxReads)
	for _, v := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(v)
		})
	}
	wg.Wait()
}
