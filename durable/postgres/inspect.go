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
func (e *engine) Page(ctx context.Context, f driver.Filter, after driver.Cursor, n int) ([]driver.Info, driver.Cursor, error) {
	from, id := time.Unix(0, 0), ""
	if !after.IsZero() {
		var err error
		if id, err = e.parse(after.Ref); err != nil {
			return nil, driver.Cursor{}, err
		}
		from = after.At
	}
	statement, meta, settings := e.page, any(nil), hot
	if len(f.Meta) > 0 {
		statement, meta, settings = e.pageByMeta, jsonOf(f.Meta, len(f.Meta)), byMeta
	}
	rows, err := retry(ctx, e.db, true, func() ([]listed, error) {
		return ask(ctx, e.db, e.listed, statement, []any{from, id, states[f.State], f.Kind, f.Lane, meta, n + 1}, settings)
	})
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
func (e *engine) listed(row pgx.CollectableRow) (l listed, err error) {
	l.info, err = e.info(row, &l.cursor.At)
	l.cursor.Ref = l.info.Ref
	return l, err
}

// Backlog counts up to 10,000 overdue jobs of each kind. Up to 100,000 jobs that wait it
// counts one by one, and more than that by the server's estimate of all that are kept.
func (e *engine) Backlog(ctx context.Context) (b driver.Backlog, err error) {
	b.Kinds, err = retry(ctx, e.db, true, func() ([]driver.Overdue, error) {
		return ask(ctx, e.db, func(row pgx.CollectableRow) (o driver.Overdue, err error) {
			var id string
			err = row.Scan(&o.Kind, &id, &o.Due, &o.Jobs, &o.Handled)
			o.Oldest = e.refOf(id)
			return o, err
		}, e.backlog, []any{mostOverdue, mostOfKind}, hot)
	})
	if err != nil {
		return driver.Backlog{}, err
	}
	waiting, err := retry(ctx, e.db, true, func() ([]int64, error) {
		return ask(ctx, e.db, pgx.RowTo[int64], e.pending, []any{mostPending})
	})
	if err != nil {
		return driver.Backlog{}, err
	}
	b.Waiting = waiting[0]
	return b, nil
}

// Workers returns the living workers, and dead ones that hold jobs. Since is when the
// first of its jobs was due: the time of the claim is not stored.
func (e *engine) Workers(ctx context.Context) ([]driver.WorkerInfo, error) {
	return retry(ctx, e.db, true, func() ([]driver.WorkerInfo, error) {
		return ask(ctx, e.db, func(row pgx.CollectableRow) (w driver.WorkerInfo, err error) {
			var since *time.Time
			if err = row.Scan(&w.Name, &w.Until, &w.Jobs, &since, &w.Kinds, &w.AllKinds); since != nil {
				w.Since = *since
			}
			return w, err
		}, e.workers, []any{driver.ShownKinds}, hot)
	})
}
