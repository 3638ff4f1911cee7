package jetstream

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// listings list jobs and workers, for people. It writes nothing.
type listings struct {
	*finder
	queues *queues
}

// page adds what a partition has. A job's cursor is no earlier than its bucket, where it may
// have come late: so a bucket has none that belongs before.
func (ls *listings) page(ctx context.Context, f driver.Filter, found *firsts) error {
	add := func(jobs iter.Seq2[driver.Info, error], begins time.Time) error {
		for i, err := range jobs {
			if err != nil {
				return err
			}
			at := i.Due
			if at.Before(begins) {
				at = begins
			}
			found.add(listed{i, driver.Cursor{At: at, Ref: i.Ref}})
		}
		return nil
	}
	if f.State.Ended() {
		return add(ls.deadJobs(ctx, f), time.Time{})
	}
	filled, err := ls.filledBuckets(ctx)
	if err != nil {
		return err
	}
	last, seen := ls.now().Add(claimedAhead), map[location]bool{}
	for _, b := range filled {
		if !b.end.After(found.after.At) {
			continue
		}
		if found.isFull(b.start) || f.State == driver.Running && b.start.After(last) {
			return nil
		}
		if err := add(ls.kept(ctx, f, seen, b.filter), b.start); err != nil {
			return err
		}
	}
	return nil
}

// listed is a job and its cursor in a listing.
type listed struct {
	info   driver.Info
	cursor driver.Cursor
}

// firsts collects the first n jobs after a cursor, in any order.
type firsts struct {
	after driver.Cursor
	n     int
	jobs  []listed
}

func (f *firsts) add(m listed) {
	if m.cursor.Compare(f.after) <= 0 {
		return
	}
	if f.jobs = append(f.jobs, m); len(f.jobs) > 2*f.n {
		f.cut()
	}
}

// cut leaves the first n, sorted.
func (f *firsts) cut() {
	slices.SortFunc(f.jobs, func(a, b listed) int { return a.cursor.Compare(b.cursor) })
	f.jobs = f.jobs[:min(len(f.jobs), f.n)]
}

// isFull reports whether what begins at a time cannot be among them.
func (f *firsts) isFull(begins time.Time) bool {
	f.cut()
	return len(f.jobs) == f.n && f.jobs[f.n-1].cursor.At.Before(begins)
}

// filledBucket is a bucket of either level that has something.
type filledBucket struct {
	filter     string
	start, end time.Time
}

// filledBuckets returns the buckets that have something, by their start.
func (ls *listings) filledBuckets(ctx context.Context) ([]filledBucket, error) {
	far, err := ls.bucketsOf(ctx, "h")
	if err != nil {
		return nil, err
	}
	near, err := ls.contents(ctx, "q.>")
	if err != nil {
		return nil, err
	}
	var all []filledBucket
	for h := range far {
		all = append(all, filledBucket{ls.farSubject(h), time.UnixMicro(h * ls.far), time.UnixMicro((h + 1) * ls.far)})
	}
	for b := range near {
		all = append(all, filledBucket{ls.queueSubject(b, "*"), ls.start(b), ls.end(b)})
	}
	slices.SortFunc(all, func(a, b filledBucket) int { return a.start.Compare(b.start) })
	return all, nil
}

// claimedAhead is more than the time before it is due when a job may be claimed.
const claimedAhead = time.Minute

const (
	mostOverdue = 100    // kinds that Backlog and Unhandled return
	mostRead    = 20_000 // records that it reads, and a page of each kind
)

// backlog is what a Backlog has found.
type backlog struct {
	unhandled bool // only what no worker can run is looked for

	waiting int64
	kinds   map[string]*driver.Overdue
	hashes  map[string]string // kinds by their hashes
	read    int64

	// Of queues of several kinds: what was read and is due, and how much was not read.
	mixed  map[*driver.Overdue]int64
	due    int64
	unread int64
}

// count adds jobs that are due and were not read, of a kind if they are of one, and nil if that
// is not known.
func (b *backlog) count(of *driver.Overdue, one bool, n int64) {
	b.waiting += n
	switch {
	case !one:
		b.unread += n
	case of != nil:
		of.Jobs += n
	}
}

// backlogOf reads a queue of n messages, as far as there is reason to: a page at least.
func (ls *listings) backlogOf(ctx context.Context, b *backlog, at spot, n int64, now time.Time, handled map[string]bool, seen map[location]bool) error {
	var last *driver.Overdue
	one, least := isOneKind(at.queue), b.read+pageSize
	for v, err := range ls.versions(ctx, ls.queueSubject(at.bucket, at.queue)) {
		if err != nil {
			return err
		}
		if n--; !v.s.fate.final() && v.s.fate != claimed && !seen[v.at] {
			seen[v.at] = true
			if b.waiting++; !v.r.Due.After(now) {
				if last = b.add(&v.r, ls.refOf(&v.r), handled); !one {
					b.due++
					b.mixed[last]++
				}
			}
		}
		if b.read++; b.read >= mostRead && b.read >= least {
			break
		}
	}
	if n > 0 {
		b.count(last, one, n)
	}
	return nil
}

// add counts a job that is due.
func (b *backlog) add(r *driver.Record, ref driver.Ref, handled map[string]bool) *driver.Overdue {
	kind := r.Kind
	o := b.kinds[kind]
	if o == nil {
		hash := hashOf(kind)
		o = &driver.Overdue{Kind: kind, Handled: handled[hash]}
		b.kinds[kind], b.hashes[hash] = o, kind
	}
	if o.Jobs++; o.Due.IsZero() || r.Due.Before(o.Due) {
		o.Oldest, o.Due = ref, r.Due
	}
	return o
}

// workers adds what a partition knows. Of the heartbeats in several the oldest counts.
func (ls *listings) workers(ctx context.Context, all map[string]*driver.WorkerInfo) error {
	lives, heartbeats, err := ls.queues.lives(ctx)
	if err != nil {
		return err
	}
	of := func(name string) *driver.WorkerInfo {
		if all[name] == nil {
			all[name] = &driver.WorkerInfo{Name: name}
		}
		return all[name]
	}
	for subject, l := range lives {
		w := of(strings.TrimPrefix(subject, ls.workerSubject("")))
		if until := ls.serverTime(heartbeats[subject].Time).Add(l.Lease); w.Until.IsZero() || until.Before(w.Until) {
			w.Until = until
		}
		w.Kinds, w.AllKinds = l.Names, l.All
	}
	near, err := ls.contents(ctx, "q.>")
	if err != nil {
		return err
	}
	last := ls.now().Add(claimedAhead)
	for _, bucket := range sorted(near) {
		if ls.start(bucket).After(last) {
			break
		}
		claims, err := ls.claims(ctx, bucket)
		if err != nil {
			return err
		}
		for _, c := range claims {
			w := of(c.worker)
			if w.Jobs++; w.Since.IsZero() || c.at.Before(w.Since) {
				w.Since = c.at
			}
		}
	}
	return nil
}

// claim is one that has not ended.
type claim struct {
	worker string
	at     time.Time
}

// claims returns those of a bucket, by their subjects. Of several messages of one subject the
// last counts.
func (ls *listings) claims(ctx context.Context, bucket int64) (map[string]claim, error) {
	found := map[string]claim{}
	for page, err := range ls.pages(ctx, ls.subject("c."+itoa(bucket)+".>"), 1, time.Time{}) {
		if err != nil {
			return nil, err
		}
		for _, m := range page {
			delete(found, m.Subject)
			if s, err := decodeStatus(m.Data, m.Seq); err == nil && s.fate == claimed { // one that cannot be read hides no others
				found[m.Subject] = claim{s.worker, ls.serverTime(m.Time)}
			}
		}
	}
	return found, nil
}
