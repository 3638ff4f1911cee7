package jetstream

import (
	"cmp"
	"context"
	"errors"
	"hash/crc32"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// engine is a [driver.Engine] on one or more streams.
//
// It has no lock, and keeps nothing of a job: a Ref and a key say in which partition a job
// is, so that any process can answer for it. It holds no lock of another type while it asks
// a server. Its FlowControl, SetFlowControl and Usage are those of the embedded
// flowControl.
type engine struct {
	*flowControl
	parts []*part
	close context.CancelCauseFunc
}

// newEngine joins open partitions. The limits and pauses are in the first one, so they are
// forgotten when that goes back. End is called by Close: it ends all that waits in any of
// them.
func newEngine(queue string, parts []*part, end context.CancelCauseFunc) *engine {
	first := parts[0]
	e := &engine{parts: parts, close: end, flowControl: &flowControl{notices: &notices{nc: first.Conn, queue: queue}}}
	for _, p := range parts {
		e.flowControl.parts = append(e.flowControl.parts, p.quotas)
	}
	first.Drop = append(first.Drop, func() { e.known.Store(nil) })
	return e
}

// of returns the partition of a key, or else of an ID. All jobs of a key are in one, since
// a job that replaces another is stored in the commit that cancels that, and a commit
// covers one stream.
func (e *engine) of(key, id string) *part {
	if key == "" {
		key = id
	}
	return e.parts[crc32.ChecksumIEEE([]byte(key))%uint32(len(e.parts))]
}

// find returns the partition and the address of a Ref. It makes no request: a Ref says
// where its job was stored first. One of another queue, or a mistyped one, is ErrNotFound
// by its checksum.
func (e *engine) find(r driver.Ref) (*part, address, error) {
	a, err := parseRef(r, e.parts[0].salt, len(e.parts))
	if err != nil {
		return nil, a, err
	}
	return e.parts[a.part], a, nil
}

// spread calls f for each partition with the indices of the elements that are its own, all
// at once. Where all are of one partition, as they are in most queues, there is no
// goroutine more.
//
// f of one partition may write only the results of its own indices: then none needs a lock.
// A slow partition delays the call, but no other partition.
func spread(e *engine, n int, of func(i int) *part, f func(p *part, indices []int)) {
	byPart := make([][]int, len(e.parts))
	for i := range n {
		if p := of(i); p != nil {
			byPart[p.number] = append(byPart[p.number], i)
		}
	}
	var wg sync.WaitGroup
	for k, indices := range byPart {
		switch {
		case len(indices) == n:
			f(e.parts[k], indices)
		case len(indices) > 0:
			wg.Go(func() { f(e.parts[k], indices) })
		}
	}
	wg.Wait()
}

// spreadRefs is spread of Refs, progressSize of a partition at a time. A Ref that is not of
// this queue has an error of its own, and does not keep f from the others.
func spreadRefs[T any](e *engine, refs []driver.Ref, f func(p *part, as []address) ([]T, []error)) ([]T, []error) {
	all, errs := make([]T, len(refs)), make([]error, len(refs))
	addresses := make([]address, len(refs))
	spread(e, len(refs), func(i int) (p *part) {
		p, addresses[i], errs[i] = e.find(refs[i])
		return p
	}, func(p *part, indices []int) {
		for some := range slices.Chunk(indices, progressSize) {
			found, failed := f(p, pick(addresses, some))
			for k, i := range some {
				all[i], errs[i] = found[k], failed[k]
			}
		}
	})
	return all, errs
}

// Insert stores the jobs of each partition in commits of their own. One partition may fail,
// and the others not: so there is an error for each job, and none for the call.
//
// Jobs without a key cost one commit for up to stream.MaxWrites of them, or as many writes
// at one time if they are few.
func (e *engine) Insert(ctx context.Context, recs []driver.Record) ([]driver.Ref, []error) {
	refs, errs := make([]driver.Ref, len(recs)), make([]error, len(recs))
	spread(e, len(recs), func(i int) *part { return e.of(recs[i].Key, recs[i].ID) }, func(p *part, indices []int) {
		stored, failed := p.inserts.insert(ctx, pick(recs, indices))
		for k, i := range indices {
			refs[i], errs[i] = stored[k], failed[k]
		}
	})
	return refs, errs
}

// Cancel ends the jobs of a partition one after the other. A commit for many would be
// refused as a whole for each job that has begun, and be tried again in halves, as those of
// claims are.
//
// One job costs three requests on one replica: what became of it, the write, and the mark
// of its bucket. One in a far bucket costs two more, which free the room of its payload.
func (e *engine) Cancel(ctx context.Context, refs []driver.Ref) ([]bool, []error) {
	return spreadRefs(e, refs, func(p *part, as []address) ([]bool, []error) {
		oks, errs := make([]bool, len(as)), make([]error, len(as))
		for i, a := range as {
			oks[i], errs[i] = p.changes.cancel(ctx, a)
		}
		return oks, errs
	})
}

// Move ends a version of the job and stores the next, in one commit, with the payload. So
// it takes room before it gives some back, and is refused by a full store.
func (e *engine) Move(ctx context.Context, ref driver.Ref, at time.Time) (bool, error) {
	p, a, err := e.find(ref)
	if err != nil {
		return false, err
	}
	return p.changes.move(ctx, a, at)
}

// Signal finds the job by its key, which says the partition, and moves it. A job without a
// key takes none.
func (e *engine) Signal(ctx context.Context, key string, payload []byte, at time.Time) (bool, error) {
	return e.of(key, "").changes.signal(ctx, key, payload, at)
}

// Redrive stores a dead job once more, on the condition that it is still dead. If two calls
// overlap, one gets ErrNotFound.
func (e *engine) Redrive(ctx context.Context, ref driver.Ref, at time.Time) error {
	p, a, err := e.find(ref)
	if err != nil {
		return err
	}
	return p.changes.redrive(ctx, a, at)
}

// Delete removes what is kept of a job. It reads the job, for the sequence that is its
// condition.
func (e *engine) Delete(ctx context.Context, ref driver.Ref) error {
	p, a, err := e.find(ref)
	if err != nil {
		return err
	}
	return p.changes.deleteDead(ctx, a)
}

// Lookup returns the job that has a key. ErrNotFound is returned only if it stands
// (stands.go): a leader that was deposed may not know the newest job. While it does not
// stand the key is read again, for as long as ctx lasts. A Ref may be old, and needs no
// witness.
func (e *engine) Lookup(ctx context.Context, key string) (driver.Ref, error) {
	p := e.of(key, "")
	for {
		h, err := p.keyHolder(ctx, key)
		if err == nil && !h.alive {
			_, err = p.ifStands(ctx, p.readingOf(&h), driver.ErrNotFound)
		}
		if !errors.Is(err, stream.ErrBusy) || ctx.Err() != nil {
			return h.ref, err
		}
	}
}

// CancelRunning stores a request for the worker that runs a job, and publishes it. The
// worker reads the stored one with each heartbeat. So a notice that is lost, or whose
// subject the user may not publish to, costs time and no cancel. A worker of this engine is
// notified without the server.
func (e *engine) CancelRunning(ctx context.Context, ref driver.Ref) (bool, error) {
	p, a, err := e.find(ref)
	if err != nil {
		return false, err
	}
	return p.changes.cancelRunning(ctx, a, ref, func(worker string) {
		e.notices.publish("cancel."+worker, []byte(ref))
		e.notices.notifyWorker(ctx, worker)
	})
}

// Get reads the job from its bucket, or from those that are kept. Other servers than the
// leader may answer for the record, so what it says may be some moments old.
func (e *engine) Get(ctx context.Context, ref driver.Ref) (driver.Info, error) {
	p, a, err := e.find(ref)
	if err != nil {
		return driver.Info{}, err
	}
	return p.describe(ctx, ref, a)
}

// Progress costs one request for progressSize jobs, and one more if some of them were
// moved. Jobs of which that says too little are read one by one.
func (e *engine) Progress(ctx context.Context, refs []driver.Ref) ([]driver.Progress, []error) {
	return spreadRefs(e, refs, func(p *part, as []address) ([]driver.Progress, []error) {
		return p.progress(ctx, as)
	})
}

// Scan reads all messages of jobs, payloads included, a page at a time. A loop that ends
// early costs what it has read.
func (e *engine) Scan(ctx context.Context, f driver.Filter) iter.Seq2[driver.Info, error] {
	return inParts(e, func(p *part) iter.Seq2[driver.Info, error] { return p.scan(ctx, f) })
}

// Now is the clock of the first partition's leader. Servers of a cluster agree to within
// what NTP does; all partitions' times are taken from their own leaders.
//
// It costs two requests to the first stream, and is exact to half a round trip.
func (e *engine) Now(ctx context.Context) (time.Time, time.Duration, error) {
	if err := e.parts[0].sync(ctx); err != nil {
		return time.Time{}, 0, err
	}
	t, off := e.parts[0].Clock.Now()
	return t, off, nil
}

// Close ends all calls, and the Fetches of workers; they return durable.ErrClosed. It sends
// nothing, and leaves the connection, which is the caller's. A second call changes nothing:
// the first cause stays.
func (e *engine) Close() error {
	e.close(driver.ErrClosed)
	return nil
}

// inParts yields what the partitions yield, one after the other, up to the first error.
//
// One after the other, so that memory is needed for one page. A caller that stops early
// leaves the other partitions unread.
func inParts[T any](e *engine, of func(*part) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, p := range e.parts {
			for v, err := range of(p) {
				if !yield(v, err) || err != nil {
					return
				}
			}
		}
	}
}

// SetSchedule goes to the partition of the occurrences' key: the schedule and its
// occurrence change in one commit.
func (e *engine) SetSchedule(ctx context.Context, was int64, s driver.Schedule, replace driver.Replace) error {
	return e.of(driver.OccurrenceKey(s.Name), "").schedules.setSchedule(ctx, was, s, replace)
}

// Schedule returns one that was deleted, too, while it is remembered. It costs one request.
func (e *engine) Schedule(ctx context.Context, name string) (driver.Schedule, error) {
	s, m, err := e.of(driver.OccurrenceKey(name), "").schedules.readSchedule(ctx, name)
	if err == nil && m.Seq == 0 {
		err = driver.ErrNotFound
	}
	return s, err
}

// Schedules reads the last message of each subject that there is. A reading in the stream's
// order would find those again and again whose occurrences end meanwhile.
//
// It costs one list of subjects, and one request for each PageSize of them.
func (e *engine) Schedules(ctx context.Context) iter.Seq2[driver.Schedule, error] {
	return inParts(e, func(p *part) iter.Seq2[driver.Schedule, error] { return p.schedules.list(ctx) })
}

// Health is for durable.Queue: it returns an error while a setting of the server or a
// stream loses jobs or keeps them from running.
//
// It asks nobody. The error is from the last poll or Add, and so at most some seconds old
// while a worker of this engine runs.
func (e *engine) Health(context.Context) error {
	for _, p := range e.parts {
		if err := p.Troubled(); err != nil {
			return err
		}
	}
	return nil
}

// handled returns the hashes of the kinds that workers can run which live. It returns
// stream.ErrBehind if a worker of this process is not among them: its heartbeat is late,
// and those of others may be, or the server that answers was frozen and has old ones. A
// kind that is wrongly said to have no worker would alarm somebody, and an error does not.
func (e *engine) handled(ctx context.Context, p *part, now time.Time) (map[string]bool, error) {
	lives, heartbeats, err := p.queues.lives(ctx)
	if err != nil {
		return nil, err
	}
	hashes, alive := map[string]bool{}, map[string]bool{}
	for subject, l := range lives {
		if p.ServerTime(heartbeats[subject].Time).Add(l.Lease).After(now) {
			alive[subject] = true
			for _, hash := range l.Kinds {
				hashes[hash] = true
			}
		}
	}
	for _, l := range e.notices.all() {
		if !alive[p.workerSubject(l.name)] {
			return nil, stream.ErrBehind
		}
	}
	return hashes, nil
}

// Page reads the buckets in their order, and all dead jobs.
//
// No index has the jobs in their order: it is made anew for each page, from the first
// bucket after the cursor on, until n jobs are found. One bucket is read as a whole. It
// takes one more than n, by which it knows whether a page follows. The jobs of all
// partitions are one order.
func (e *engine) Page(ctx context.Context, f driver.Filter, after driver.Cursor, n int) ([]driver.Info, driver.Cursor, error) {
	found := &firsts{after: after, n: n + 1}
	for _, p := range e.parts {
		if err := p.listings.page(ctx, f, found); err != nil {
			return nil, driver.Cursor{}, err
		}
	}
	found.cut()
	var next driver.Cursor
	if len(found.jobs) > n {
		next = found.jobs[n-1].cursor
		found.jobs = found.jobs[:n]
	}
	infos := make([]driver.Info, len(found.jobs))
	for i, m := range found.jobs {
		infos[i] = m.info
	}
	return infos, next, nil
}

// Backlog reads due jobs until it has read enough. The server counts the rest, including
// ended jobs in a bucket that is not closed yet. For queues of several kinds, Backlog
// divides the rest among kinds as the jobs that it has read.
//
// It reads mostRead records at most, and a page of each kind.
func (e *engine) Backlog(ctx context.Context) (driver.Backlog, error) {
	b := &backlog{}
	kinds, err := e.overdue(ctx, b)
	return driver.Backlog{Waiting: b.waiting, Kinds: kinds[:min(len(kinds), mostOverdue)]}, err
}

// Unhandled reads what is due of the kinds that no worker can run. Those have queues of
// their own while any worker lives, so all other queues are passed over by their names.
func (e *engine) Unhandled(ctx context.Context) ([]driver.Unhandled, error) {
	kinds, err := e.overdue(ctx, &backlog{unhandled: true})
	var all []driver.Unhandled
	for _, o := range kinds {
		if !o.Handled && len(all) < mostOverdue {
			all = append(all, driver.Unhandled{Kind: o.Kind, Oldest: o.Oldest, Due: o.Due})
		}
	}
	return all, err
}

// overdue returns the kinds that have jobs that are due, those that wait longest first.
func (e *engine) overdue(ctx context.Context, b *backlog) ([]driver.Overdue, error) {
	b.kinds, b.hashes, b.mixed = map[string]*driver.Overdue{}, map[string]string{}, map[*driver.Overdue]int64{}
	for _, p := range e.parts {
		if err := e.backlog(ctx, p, b); err != nil {
			return nil, err
		}
	}
	all := make([]driver.Overdue, 0, len(b.kinds))
	for _, o := range b.kinds {
		o.Jobs += b.mixed[o] * b.unread / max(1, b.due)
		all = append(all, *o)
	}
	slices.SortFunc(all, func(a, b driver.Overdue) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Kind, b.Kind))
	})
	return all, nil
}

// backlog adds what one partition has, the oldest bucket first. Three requests say how many
// messages are where, and which kinds have a worker; only then are records read. The jobs
// of far buckets, and of near ones whose time has not come, are counted and not read.
func (e *engine) backlog(ctx context.Context, p *part, b *backlog) error {
	now := p.Now()
	far, err := p.bucketsOf(ctx, "h")
	if err != nil {
		return err
	}
	for _, n := range far {
		b.waiting += int64(n)
	}
	near, err := p.contents(ctx, "q.>")
	if err != nil {
		return err
	}
	handled, err := e.handled(ctx, p, now)
	if err != nil {
		return err
	}
	for _, bucket := range sorted(near) {
		seen := map[location]bool{} // copies count once
		for queue, n := range near[bucket] {
			kind, known := b.hashes[queue]
			switch {
			// While a worker lives, what it cannot run is in the queues of one kind.
			case b.unhandled && (handled[queue] || known || !isOneKind(queue) && len(handled) > 0):
			case p.start(bucket).After(now):
				b.waiting += int64(n)
			case b.read < mostRead || isOneKind(queue) && !known && len(b.hashes) < 4*mostOverdue:
				if err := p.listings.backlogOf(ctx, b, spot{bucket, queue}, int64(n), now, handled, seen); err != nil {
					return err
				}
			default:
				b.count(b.kinds[kind], isOneKind(queue), int64(n))
			}
		}
	}
	return nil
}

// Workers reads the heartbeats, and the statuses of due jobs.
//
// A worker without a heartbeat is shown as long as a claim of a due bucket names it: its
// jobs are taken over only after its lease.
func (e *engine) Workers(ctx context.Context) ([]driver.WorkerInfo, error) {
	all := map[string]*driver.WorkerInfo{}
	for _, p := range e.parts {
		if err := p.listings.workers(ctx, all); err != nil {
			return nil, err
		}
	}
	var sorted []driver.WorkerInfo
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if w := all[name]; w.Jobs > 0 || w.Until.After(e.parts[0].Now()) {
			sorted = append(sorted, *w)
		}
	}
	return sorted, nil
}
