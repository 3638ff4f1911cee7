package jetstream

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/tickwheel/tickwheel/durable/driver"
)

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
	now := p.now()
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
		if w := all[name]; w.Jobs > 0 || w.Until.After(e.parts[0].now()) {
			sorted = append(sorted, *w)
		}
	}
	return sorted, nil
}
