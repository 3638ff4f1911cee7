package postgres

import (
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// reader answers questions about jobs and workers: it finds, lists and counts. What one statement
// returns is true at one time. The pages of a listing are of several, and so are the two counts of
// Backlog.
//
// It keeps nothing, so it has no lock. It changes no row and locks none, and so holds up no
// worker.
type reader struct{ *db }

// states are those of the column, by durable's. Ended jobs are not shown.
var states = map[driver.State]int16{0: -1, driver.Waiting: 0, driver.Running: 1, driver.Dead: 2, driver.StateDone: 4, driver.StateCanceled: 5}

// stateOf is the reverse of states, for the jobs that are shown: the column has 3 for a job that has ended.
func stateOf(column int16) driver.State {
	if column > 3 {
		column--
	}
	return driver.Waiting + driver.State(column)
}

// byMeta has the index on meta be used, which gives a bitmap, rather than all of the table
// or of its ids be read.
const byMeta = "select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"

// page is how many jobs Scan reads at a time: with the largest payloads, 50 MiB.
const page = 200

// Lookup returns the job that has the key.
func (r *reader) Lookup(ctx context.Context, key string) (ref driver.Ref, err error) {
	ids, err := query(ctx, r.db, pgx.RowTo[string], r.lookup, []any{key}, hot)
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", driver.ErrNotFound
	}
	return r.refOf(ids[0]), nil
}

// Get returns the Info of a job that is kept.
func (r *reader) Get(ctx context.Context, ref driver.Ref) (driver.Info, error) {
	id, err := r.parse(ref)
	if err != nil {
		return driver.Info{}, err
	}
	infos, err := r.infos(ctx, hot, r.get, id)
	if err == nil && len(infos) == 0 {
		err = driver.ErrNotFound
	}
	if err != nil {
		return driver.Info{}, err
	}
	return infos[0], nil
}

// Progress reads all of the jobs with one statement. The due time of a job that does not wait is the end of
// something else.
func (r *reader) Progress(ctx context.Context, refs []driver.Ref) ([]driver.Progress, []error) {
	all, errs := make([]driver.Progress, len(refs)), make([]error, len(refs))
	indices, ids := map[string][]int{}, []string{}
	for i, ref := range refs {
		id, err := r.parse(ref)
		if errs[i] = err; err == nil {
			indices[id] = append(indices[id], i)
			ids = append(ids, id)
		}
	}
	_, err := query(ctx, r.db, func(row pgx.CollectableRow) (struct{}, error) {
		var id string
		var state int16
		var due time.Time
		err := row.Scan(&id, &state, &due)
		for _, i := range indices[id] {
			all[i] = driver.Progress{State: stateOf(state), Due: due}
		}
		return struct{}{}, err
	}, r.progress, []any{ids}, hot)
	if err != nil {
		for _, of := range indices {
			for _, i := range of {
				errs[i] = err
			}
		}
	}
	return all, errs
}

// Scan iterates over the table by id, a page at a time.
func (r *reader) Scan(ctx context.Context, f driver.Filter) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		state, ok := states[f.State]
		if !ok {
			return // no job has it
		}
		statement, meta, settings := r.scan, []any(nil), hot
		if len(f.Meta) > 0 {
			statement, meta, settings = r.search, []any{jsonOf(f.Meta, len(f.Meta))}, byMeta
		}
		last := ""
		for {
			infos, err := r.infos(ctx, settings, statement, append([]any{last, state, f.Kind, page, f.Lane}, meta...)...)
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
			for _, i := range infos {
				if !yield(i, nil) {
					return
				}
			}
			if len(infos) < page {
				return
			}
			last, _ = r.parse(infos[page-1].Ref)
		}
	}
}

// infos runs a statement that returns jobs.
func (r *reader) infos(ctx context.Context, settings, statement string, args ...any) ([]driver.Info, error) {
	return query(ctx, r.db, func(row pgx.CollectableRow) (driver.Info, error) { return r.info(row) }, statement, args, settings)
}

// info reads a row of get.sql or scan.sql, and what comes after that.
func (r *reader) info(row pgx.CollectableRow, rest ...any) (driver.Info, error) {
	var id string
	var key, worker *string
	var state int16
	var rec driver.Record
	var more extras
	err := row.Scan(append([]any{&id, &key, &rec.Kind, &rec.Payload, &rec.At, &rec.MaxAttempts, &state, &rec.Attempt, &rec.Due, &rec.LastError,
		&rec.Lane, &rec.Priority, &rec.Meta, &more.timeout, &more.expires, &rec.Errors, &more.flags, &more.retain, &rec.Ending, &worker}, rest...)...)
	more.addTo(&rec)
	if key != nil {
		rec.Key = *key
	}
	i := rec.Info(r.refOf(id), stateOf(state))
	if worker != nil {
		i.Worker = *worker
	}
	return i, err
}
