package postgres

import (
	"context"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// states are those of the column, by durable's. Ended jobs are not shown.
var states = map[driver.State]int16{0: -1, driver.Waiting: 0, driver.Running: 1, driver.Dead: 2}

// byMeta has the index on meta be used, which gives a bitmap, rather than all of the table
// or of its ids be read.
const byMeta = "select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"

// page is how many jobs Scan reads at a time: with the largest payloads, 50 MiB.
const page = 200

// Lookup returns the job that has the key.
func (e *engine) Lookup(ctx context.Context, key string) (ref driver.Ref, err error) {
	ids, err := retry(ctx, e, true, func() ([]string, error) {
		return ask(ctx, e, pgx.RowTo[string], e.lookup, []any{key}, hot)
	})
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", driver.ErrNotFound
	}
	return e.refOf(ids[0]), nil
}

// Get returns the Info of a job that is kept.
func (e *engine) Get(ctx context.Context, ref driver.Ref) (driver.Info, error) {
	id, err := e.parse(ref)
	if err != nil {
		return driver.Info{}, err
	}
	infos, err := e.infos(ctx, hot, e.get, id)
	if err == nil && len(infos) == 0 {
		err = driver.ErrNotFound
	}
	if err != nil {
		return driver.Info{}, err
	}
	return infos[0], nil
}

// Scan iterates over the table by id, a page at a time.
func (e *engine) Scan(ctx context.Context, f driver.Filter) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		state, ok := states[f.State]
		if !ok {
			return // no job has it
		}
		statement, meta, settings := e.scan, []any(nil), hot
		if len(f.Meta) > 0 {
			statement, meta, settings = e.search, []any{jsonOf(f.Meta, len(f.Meta))}, byMeta
		}
		last := ""
		for {
			infos, err := e.infos(ctx, settings, statement, append([]any{last, state, f.Kind, page, f.Lane}, meta...)...)
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
			last, _ = e.parse(infos[page-1].Ref)
		}
	}
}

// infos runs a statement that returns jobs.
func (e *engine) infos(ctx context.Context, settings, statement string, args ...any) ([]driver.Info, error) {
	return retry(ctx, e, true, func() ([]driver.Info, error) {
		return ask(ctx, e, func(row pgx.CollectableRow) (driver.Info, error) { return e.info(row) }, statement, args, settings)
	})
}

// info reads a row of get.sql or scan.sql, and what comes after that.
func (e *engine) info(row pgx.CollectableRow, rest ...any) (driver.Info, error) {
	var id string
	var key, worker *string
	var state int16
	var r driver.Record
	var more extras
	err := row.Scan(append([]any{&id, &key, &r.Kind, &r.Payload, &r.At, &r.MaxAttempts, &state, &r.Attempt, &r.Due, &r.LastError,
		&r.Lane, &r.Priority, &r.Meta, &more.timeout, &more.expires, &r.Errors, &more.flags, &worker}, rest...)...)
	more.addTo(&r)
	if key != nil {
		r.Key = *key
	}
	i := r.Info(e.refOf(id), driver.Waiting+driver.State(state))
	if worker != nil {
		i.Worker = *worker
	}
	return i, err
}
