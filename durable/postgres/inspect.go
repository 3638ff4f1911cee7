package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

const (
	mostOverdue = 100     // kinds that Backlog returns at most
	mostOfKind  = 10_000  // jobs of one that it counts
	mostPending = 100_000 // jobs in all, before it believes the server's estimate
)

// Page goes by the index on kind and due. Dead jobs come in the order in which they are
// removed. With one retention that is the order in which they died.
func (r *reader) Page(ctx context.Context, f driver.Filter, after driver.Cursor, n int) ([]driver.Info, driver.Cursor, error) {
	from, id := time.Unix(0, 0), ""
	if !after.IsZero() {
		var err error
		if id, err = r.parse(after.Ref); err != nil {
			return nil, driver.Cursor{}, err
		}
		from = after.At
	}
	statement, meta, settings := r.page, any(nil), hot
	if len(f.Meta) > 0 {
		statement, meta, settings = r.pageByMeta, jsonOf(f.Meta, len(f.Meta)), byMeta
	}
	rows, err := query(ctx, r.db, r.listed, statement, []any{from, id, states[f.State], f.Kind, f.Lane, meta, n + 1}, settings)
	if err != nil {
		return nil, driver.Cursor{}, err
	}
	var next driver.Cursor
	if len(rows) > n {
		rows = rows[:n]
		next = rows[n-1].cursor
	}
	infos := make([]driver.Info, len(rows))
	for i, r := range rows {
		infos[i] = r.info
	}
	return infos, next, nil
}

// listed is a job and its cursor in a listing.
type listed struct {
	info   driver.Info
	cursor driver.Cursor
}

// listed reads a row of page.sql, which has one column more than others.
func (r *reader) listed(row pgx.CollectableRow) (l listed, err error) {
	l.info, err = r.info(row, &l.cursor.At)
	l.cursor.Ref = l.info.Ref
	return l, err
}

// Backlog counts up to 10,000 overdue jobs of each kind. Up to 100,000 jobs that wait it
// counts one by one, and more than that by the server's estimate of all that are kept.
func (r *reader) Backlog(ctx context.Context) (b driver.Backlog, err error) {
	b.Kinds, err = query(ctx, r.db, func(row pgx.CollectableRow) (o driver.Overdue, err error) {
		var id string
		err = row.Scan(&o.Kind, &id, &o.Due, &o.Jobs, &o.Handled)
		o.Oldest = r.refOf(id)
		return o, err
	}, r.backlog, []any{mostOverdue, mostOfKind}, hot)
	if err != nil {
		return driver.Backlog{}, err
	}
	waiting, err := query(ctx, r.db, pgx.RowTo[int64], r.pending, []any{mostPending})
	if err != nil {
		return driver.Backlog{}, err
	}
	b.Waiting = waiting[0]
	return b, nil
}

// Workers returns the living workers, and dead ones that hold jobs. Since is when the
// first of its jobs was due: the time of the claim is not stored.
func (r *reader) Workers(ctx context.Context) ([]driver.WorkerInfo, error) {
	return query(ctx, r.db, func(row pgx.CollectableRow) (w driver.WorkerInfo, err error) {
		var since *time.Time
		if err = row.Scan(&w.Name, &w.Until, &w.Jobs, &since, &w.Kinds, &w.AllKinds); since != nil {
			w.Since = *since
		}
		return w, err
	}, r.workers, []any{driver.ShownKinds}, hot)
}

// mostUnhandled is how many kinds Unhandled returns at most.
const mostUnhandled = 100

// Unhandled returns the kinds with a due job for which no worker has a handler.
func (r *reader) Unhandled(ctx context.Context) ([]driver.Unhandled, error) {
	return query(ctx, r.db, func(row pgx.CollectableRow) (u driver.Unhandled, err error) {
		var id string
		err = row.Scan(&u.Kind, &id, &u.Due)
		u.Oldest = r.refOf(id)
		return u, err
	}, r.unhandled, []any{mostUnhandled}, hot)
}
