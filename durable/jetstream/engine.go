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
// It has no lock, and keeps nothing of a job: a Ref and a key say in which partition a job is, so that any process can
// answer for it. It holds no lock of another type while it asks a server.
type engine struct {
	*flowControl
	parts   []*part
	salt    string
	close   context.CancelCauseFunc
	notices *notices
}

func newEngine(queue string, parts []*part, end context.CancelCauseFunc) *engine {
	first := parts[0]
	e := &engine{parts: parts, salt: first.salt, close: end, notices: &notices{nc: first.Conn, queue: queue}}
	e.flowControl = &flowControl{notices: e.notices}
	for _, p := range parts {
		p.salt = first.salt
		e.flowControl.parts = append(e.flowControl.parts, p.quotas)
	}
	first.Drop = append(first.Drop, func() { e.known.Store(nil) })
	return e
}

// of returns the partition of a key, or else of an ID. All jobs of a key are in one, since a job that replaces another is
// stored in the commit that cancels that, and a commit covers one stream.
func (e *engine) of(key, id string) *part {
	if key == "" {
		key = id
	}
	return e.parts[crc32.ChecksumIEEE([]byte(key))%uint32(len(e.parts))]
}

// find returns the partition and the address of a Ref.
func (e *engine) find(r driver.Ref) (*part, address, error) {
	a, err := parseRef(r, e.salt, len(e.parts))
	if err != nil {
		return nil, a, err
	}
	return e.parts[a.part], a, nil
}

// spread calls f for each partition with the indices of the elements that are its own,
// all at once. Where all are of one partition, as they are in most queues, there is no goroutine more.
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

// Insert stores the jobs of each partition in commits of their own. One partition may fail, and the others not: so there is
// an error for each job, and none for the call.
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

// Cancel ends the jobs of a partition one after the other. A commit for many would be refused as a whole for each job that
// has begun, and be tried again in halves, as those of claims are.
func (e *engine) Cancel(ctx context.Context, refs []driver.Ref) ([]bool, []error) {
	oks, errs := make([]bool, len(refs)), make([]error, len(refs))
	addresses := make([]address, len(refs))
	spread(e, len(refs), func(i int) (p *part) {
		p, addresses[i], errs[i] = e.find(refs[i])
		return p
	}, func(p *part, indices []int) {
		for _, i := range indices {
			oks[i], errs[i] = p.changes.cancel(ctx, addresses[i])
		}
	})
	return oks, errs
}

func (e *engine) Move(ctx context.Context, ref driver.Ref, at time.Time) (bool, error) {
	p, a, err := e.find(ref)
	if err != nil {
		return false, err
	}
	return p.changes.move(ctx, a, at)
}

func (e *engine) Signal(ctx context.Context, key string, payload []byte, at time.Time) (bool, error) {
	return e.of(key, "").changes.signal(ctx, key, payload, at)
}

func (e *engine) Redrive(ctx context.Context, ref driver.Ref, at time.Time) error {
	p, a, err := e.find(ref)
	if err != nil {
		return err
	}
	return p.changes.redrive(ctx, a, at)
}

func (e *engine) Delete(ctx context.Context, ref driver.Ref) error {
	p, a, err := e.find(ref)
	if err != nil {
		return err
	}
	return p.changes.deleteDead(ctx, a)
}

func (e *engine) Lookup(ctx context.Context, key string) (driver.Ref, error) {
	p := e.of(key, "")
	h, err := p.keyHolder(ctx, key)
	switch {
	case err != nil:
		return "", err
	case !h.alive:
		for err = stream.ErrBusy; errors.Is(err, stream.ErrBusy) && ctx.Err() == nil; {
			if h, err = p.keyHolder(ctx, key); err == nil && !h.alive {
				_, err = p.ifStands(ctx, p.readingOf(&h), driver.ErrNotFound)
			}
		}
		return h.ref, err
	}
	return h.ref, nil
}

// CancelRunning stores a request for the worker that runs a job.
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

func (e *engine) Get(ctx context.Context, ref driver.Ref) (driver.Info, error) {
	p, a, err := e.find(ref)
	if err != nil {
		return driver.Info{}, err
	}
	return p.describe(ctx, ref, a)
}

func (e *engine) Progress(ctx context.Context, refs []driver.Ref) ([]driver.Progress, []error) {
	all, errs := make([]driver.Progress, len(refs)), make([]error, len(refs))
	addresses := make([]address, len(refs))
	spread(e, len(refs), func(i int) (p *part) {
		p, addresses[i], errs[i] = e.find(refs[i])
		return p
	}, func(p *part, indices []int) {
		for some := range slices.Chunk(indices, progressSize) {
			found, failed := p.progress(ctx, pick(addresses, some))
			for k, i := range some {
				all[i], errs[i] = found[k], failed[k]
			}
		}
	})
	return all, errs
}

func (e *engine) Scan(ctx context.Context, f driver.Filter) iter.Seq2[driver.Info, error] {
	return inParts(e, func(p *part) iter.Seq2[driver.Info, error] { return p.scan(ctx, f) })
}

// Now is the clock of the first partition's leader. Servers of a cluster agree to within
// what NTP does; all partitions' times are taken from their own leaders.
func (e *engine) Now(ctx context.Context) (time.Time, time.Duration, error) {
	if err := e.parts[0].sync(ctx); err != nil {
		return time.Time{}, 0, err
	}
	t, off := e.parts[0].Clock.Now()
	return t, off, nil
}

func (e *engine) Close() error {
	e.close(driver.ErrClosed)
	return nil
}

// inParts yields what the partitions yield, one after the other, up to the first error.
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

func (e *engine) SetSchedule(ctx context.Context, was int64, s driver.Schedule, replace driver.Replace) error {
	return e.of(driver.OccurrenceKey(s.Name), "").schedules.setSchedule(ctx, was, s, replace)
}

func (e *engine) Schedule(ctx context.Context, name string) (driver.Schedule, error) {
	s, m, err := e.of(driver.OccurrenceKey(name), "").schedules.readSchedule(ctx, name)
	if err == nil && m.Seq == 0 {
		err = driver.ErrNotFound
	}
	return s, err
}

// Schedules reads the last message of each subject that there is. A reading in the stream's
// order would find those again and again whose occurrences end meanwhile.
func (e *engine) Schedules(ctx context.Context) iter.Seq2[driver.Schedule, error] {
	return inParts(e, func(p *part) iter.Seq2[driver.Schedule, error] { return p.schedules.list(ctx) })
}

// Health is for durable.Queue: it returns an error while a setting of the server or a stream loses
// jobs or keeps them from running.
func (e *engine) Health(context.Context) error {
	for _, p := range e.parts {
		if err := p.Troubled(); err != nil {
			return err
		}
	}
	return nil
}

// handled returns the hashes of the kinds that workers can run which live. It returns stream.ErrBehind if a worker of this process
// is not among them: its heartbeat is late, and those of others may be, or the server that answers was frozen
// and has old ones.
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
func (e *engine) Backlog(ctx context.Context) (driver.Backlog, error) {
	b := &backlog{}
	kinds, err := e.overdue(ctx, b)
	return driver.Backlog{Waiting: b.waiting, Kinds: kinds[:min(len(kinds), mostOverdue)]}, err
}

// Unhandled reads what is due of the kinds that no worker can run.
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
