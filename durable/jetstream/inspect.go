package jetstream

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// listings list jobs and workers, for people. It writes nothing, claims nothing, and no worker
// waits for it.
//
// A listing is not a snapshot, and may show a job as some server had it a moment ago. It reads in
// pages, and keeps the jobs that it returns, and some locations of others, so that a copy counts
// once.
//
// The requests are those of a reader of the stream: none goes to a consumer, so a listing takes no
// job from a worker, and acknowledges none.
type listings struct {
	*finder
	queues *queues
}

// page adds what a partition has. A job's cursor is no earlier than its bucket, where it may have
// come late: so a bucket has none that belongs before, and the buckets are read in order, until the
// page is full.
//
// It reads each bucket that may have some of the page as a whole. Running jobs are claimed ahead by
// claimedAhead at most, so for those no bucket after that is read. Dead jobs are in no bucket: all
// are read.
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
		return add(matching(f, ls.deadIn(ctx, everything)), time.Time{})
	}
	filled, err := ls.filledBuckets(ctx)
	if err != nil {
		return err
	}
	last, seen := ls.Now().Add(claimedAhead), map[location]bool{}
	for _, b := range filled {
		// All cursors of a bucket lie in it, so one that has ended by then has only jobs of earlier
		// pages.
		if !b.end.After(found.after.At) {
			continue
		}
		if found.isFull(b.start) || f.State == driver.Running && b.start.After(last) {
			return nil
		}
		if err := add(matching(f, ls.keptIn(ctx, everything, seen, b.filter)), b.start); err != nil {
			return err
		}
	}
	return nil
}

// listed is a job and its cursor in a listing. The cursor is not in the Info: it depends on the
// bucket, too.
type listed struct {
	info   driver.Info
	cursor driver.Cursor
}

// firsts collects the first n jobs after a cursor, which come in any order. It keeps 2n at most, so
// that a page of a queue of any size takes memory for a page: to sort at 2n costs as much for each
// job as a heap would, in less code.
type firsts struct {
	after driver.Cursor
	n     int
	jobs  []listed
}

// add leaves out jobs up to the cursor after: those were on an earlier page.
func (f *firsts) add(m listed) {
	if m.cursor.Compare(f.after) <= 0 {
		return
	}
	if f.jobs = append(f.jobs, m); len(f.jobs) > 2*f.n {
		f.cut()
	}
}

// cut leaves the first n, sorted. Two jobs of one time are in the order of their Refs, so that each
// page begins where the one before has ended.
func (f *firsts) cut() {
	slices.SortFunc(f.jobs, func(a, b listed) int { return a.cursor.Compare(b.cursor) })
	f.jobs = f.jobs[:min(len(f.jobs), f.n)]
}

// isFull reports whether no job of a bucket that begins at a time can be among them: then no later
// bucket is read. A job that is due at that very time might be, by its Ref.
func (f *firsts) isFull(begins time.Time) bool {
	f.cut()
	return len(f.jobs) == f.n && f.jobs[f.n-1].cursor.At.Before(begins)
}

// filledBucket is a bucket of either level that has something. Its filter is that of all its
// queues.
type filledBucket struct {
	filter     string
	start, end time.Time
}

// filledBuckets returns the buckets that have something, by their start. It reads the server's
// account of the subjects, twice, and no job. A bucket that is empty costs a page nothing more.
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

// claimedAhead is more than the time before it is due when a job may be claimed. Buckets that begin
// later have no claims.
const claimedAhead = time.Minute

// A Backlog of millions of jobs is an estimate: it reads some, and the server counts the rest.
const (
	// mostOverdue is how many kinds Backlog and Unhandled return: those that wait longest.
	mostOverdue = 100
	// mostRead is how many records Backlog reads, and beyond that a page of each kind that is not
	// known yet.
	mostRead = 20_000
)

// backlog is what a Backlog has found, in all partitions. One call has it, so it needs no lock.
type backlog struct {
	unhandled bool // Only jobs that no worker can run count.

	// All that waits: records that were read, and numbers of the server, with jobs that have ended
	// in a bucket that is still open.
	waiting int64

	// The kinds that have due jobs, by name, and the names by their hashes. A queue of one kind has
	// a hash for a name, so beyond mostRead a kind that is in hashes is not read again.
	kinds  map[string]*driver.Overdue
	hashes map[string]string
	read   int64 // Records, in all partitions, up to mostRead.

	// In queues of several kinds the server's count says nothing about each. So jobs that were not
	// read are divided among kinds as those that were.
	mixed  map[*driver.Overdue]int64 // Jobs that were read and are due.
	due    int64                     // The sum of mixed.
	unread int64
}

// count adds jobs that are due and were not read, of a kind if they are of one, and nil if that is
// not known.
func (b *backlog) count(of *driver.Overdue, one bool, n int64) {
	b.waiting += n
	switch {
	case !one:
		b.unread += n
	case of != nil:
		of.Jobs += n
	}
}

// backlogOf reads a queue of n messages, as far as there is reason to: a page at least, since only
// a record says the name of a kind, where a queue has its hash. The rest is the server's number,
// and counts as due, since the bucket has begun. If its kind was not found, it counts as waiting
// only.
//
// Seen has the versions of the bucket that were counted: a job that was set aside may be in two
// queues. A job that is claimed or has ended is no backlog, though its message is there until the
// bucket is closed.
func (ls *listings) backlogOf(ctx context.Context, b *backlog, at spot, n int64, now time.Time, handled map[string]bool, seen map[location]bool) error {
	var last *driver.Overdue
	one, least := isOneKind(at.queue), b.read+stream.PageSize
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

// add counts a job that is due, and returns its kind's count. The kind's oldest job is the one that
// was due first among those that were read, whatever the order of the queues.
func (b *backlog) add(r *driver.Record, ref driver.Ref, handled map[string]bool) *driver.Overdue {
	o := b.kinds[r.Kind]
	if o == nil {
		hash := hashOf(r.Kind)
		o = &driver.Overdue{Kind: r.Kind, Handled: handled[hash]}
		b.kinds[r.Kind], b.hashes[hash] = o, r.Kind
	}
	if o.Jobs++; o.Due.IsZero() || r.Due.Before(o.Due) {
		o.Oldest, o.Due = ref, r.Due
	}
	return o
}

// workers adds the heartbeats and the claims of a partition. If there are several, the oldest
// heartbeat counts: a worker lives only while it reaches all of them.
//
// A worker that has claims and no heartbeat is listed, too: it is dead, and others will take its
// jobs over. The claims are read bucket by bucket, up to those that cannot have any yet; a worker's
// count is not exact while jobs begin and end.
func (ls *listings) workers(ctx context.Context, all map[string]*driver.WorkerInfo) error {
	lives, heartbeats, err := ls.queues.lives(ctx)
	if err != nil {
		return err
	}
	// A worker may be known by its heartbeat, by a claim, or from another partition.
	of := func(name string) *driver.WorkerInfo {
		if all[name] == nil {
			all[name] = &driver.WorkerInfo{Name: name}
		}
		return all[name]
	}
	for subject, l := range lives {
		w := of(strings.TrimPrefix(subject, ls.workerSubject("")))
		if until := ls.ServerTime(heartbeats[subject].Time).Add(l.Lease); w.Until.IsZero() || until.Before(w.Until) {
			w.Until = until
		}
		w.Kinds, w.AllKinds = l.Names, l.All
	}
	near, err := ls.contents(ctx, "q.>")
	if err != nil {
		return err
	}
	// A bucket that has no job left has no claim either, so those with statuses alone are not read.
	last := ls.Now().Add(claimedAhead)
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

// claim is one that has not ended, by the last reading of its status.
type claim struct {
	worker string
	at     time.Time
}

// claims returns those of a bucket, by their subjects. It reads all statuses of the bucket, those
// of ended jobs too: only the text of a status says that it is a claim.
//
// The last message of a subject counts: the earlier ones stay until the bucket is removed, unless
// the store is filling up.
func (ls *listings) claims(ctx context.Context, bucket int64) (map[string]claim, error) {
	found := map[string]claim{}
	for page, err := range ls.Pages(ctx, ls.subject("c."+itoa(bucket)+".>"), 1, time.Time{}) {
		if err != nil {
			return nil, err
		}
		for _, m := range page {
			delete(found, m.Subject)
			if s, err := decodeStatus(m.Data, m.Seq); err == nil && s.fate == claimed { // one that cannot be read hides no others
				found[m.Subject] = claim{s.worker, ls.ServerTime(m.Time)}
			}
		}
	}
	return found, nil
}
