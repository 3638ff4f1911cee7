package postgres

import (
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable"
)

// states are those of the column, by durable's. Ended jobs are not shown.
var states = map[durable.State]int16{0: -1, durable.Waiting: 0, durable.Running: 1, durable.Dead: 2}

// byMeta has the index on meta be used, which gives a bitmap, rather than all of the table
// or of its ids be read.
const byMeta = "select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"

// page is how many jobs Scan reads at a time: with the largest payloads, 50 MiB.
const page = 200

// Lookup returns the job that has the key.
func (e *Engine) Lookup(ctx context.Context, key string) (ref durable.Ref, err error) {
	ids, err := retry(ctx, e, true, func() ([]string, error) {
		return ask(ctx, e, pgx.RowTo[string], e.lookup, []any{key}, hot)
	})
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", durable.ErrNotFound
	}
	return e.refOf(ids[0]), nil
}

// Get returns what is known of a job that is kept.
func (e *Engine) Get(ctx context.Context, ref durable.Ref) (durable.Info, error) {
	id, err := e.parse(ref)
	if err != nil {
		return durable.Info{}, err
	}
	infos, err := e.infos(ctx, hot, e.get, id)
	if err == nil && len(infos) == 0 {
		err = durable.ErrNotFound
	}
	if err != nil {
		return durable.Info{}, err
	}
	return infos[0], nil
}

// Scan goes over the table by id, a page at a time.
func (e *Engine) Scan(ctx context.Context, f durable.Filter) iter.Seq2[durable.Info, error] {
	return func(yield func(durable.Info, error) bool) {
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
				yield(durable.Info{}, err)
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
func (e *Engine) infos(ctx context.Context, settings, statement string, args ...any) ([]durable.Info, error) {
	return retry(ctx, e, true, func() ([]durable.Info, error) {
		return ask(ctx, e, func(row pgx.CollectableRow) (durable.Info, error) { return e.info(row) }, statement, args, settings)
	})
}

// info reads a row of get.sql or scan.sql, and what comes after that.
func (e *Engine) info(row pgx.CollectableRow, rest ...any) (i durable.Info, err error) {
	var id string
	var key *string
	var state int16
	var at, due time.Time
	var more extras
	err = row.Scan(append([]any{&id, &key, &i.Job.Kind, &i.Job.Payload, &at, &i.Job.MaxAttempts, &state, &i.Attempt, &due, &i.LastError,
		&i.Job.Lane, &i.Job.Priority, &i.Job.Meta, &more.timeout, &more.expires, &i.Errors}, rest...)...)
	more.addTo(&i.Job)
	i.Ref, i.Job.At, i.Due = e.refOf(id), at, due
	i.State = durable.Waiting + durable.State(state)
	if key != nil {
		i.Job.Key = *key
	}
	return i, err
}
