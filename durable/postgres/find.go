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

// page is how many jobs Scan reads at a time: with the largest payloads, 50 MiB.
const page = 200

// Lookup returns the job that has the key.
func (e *Engine) Lookup(ctx context.Context, key string) (ref durable.Ref, err error) {
	var id string
	err = e.retry(ctx, true, func() error {
		id = ""
		return e.ask(ctx, func(rows pgx.Rows) error { return rows.Scan(&id) }, e.lookup, []any{key}, hot)
	})
	switch {
	case err != nil:
		return "", err
	case id == "":
		return "", durable.ErrNotFound
	}
	return e.refOf(id), nil
}

// Get returns what is known of a job that is kept.
func (e *Engine) Get(ctx context.Context, ref durable.Ref) (durable.Info, error) {
	id, err := e.parse(ref)
	if err != nil {
		return durable.Info{}, err
	}
	infos, err := e.infos(ctx, e.get, id)
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
		last := ""
		for {
			infos, err := e.infos(ctx, e.scan, last, state, f.Kind, page)
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
func (e *Engine) infos(ctx context.Context, statement string, args ...any) (infos []durable.Info, err error) {
	err = e.retry(ctx, true, func() error {
		infos = nil
		return e.ask(ctx, func(rows pgx.Rows) error {
			i, err := e.info(rows)
			infos = append(infos, i)
			return err
		}, statement, args, hot)
	})
	return infos, err
}

// info reads a row of get.sql or scan.sql.
func (e *Engine) info(rows pgx.Rows) (i durable.Info, err error) {
	var id string
	var key *string
	var state int16
	var at, due time.Time
	err = rows.Scan(&id, &key, &i.Job.Kind, &i.Job.Payload, &at, &i.Job.MaxAttempts, &state, &i.Attempt, &due, &i.LastError)
	i.Ref, i.Job.At, i.Due = e.refOf(id), at, due
	i.State = durable.Waiting + durable.State(state)
	if key != nil {
		i.Job.Key = *key
	}
	return i, err
}
