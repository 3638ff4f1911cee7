package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable"
)

// mostUnhandled is how many kinds Unhandled returns at most.
const mostUnhandled = 100

// Unhandled returns the kinds of which a job is due and no worker has a handler.
func (e *Engine) Unhandled(ctx context.Context) ([]durable.Unhandled, error) {
	return retry(ctx, e, true, func() ([]durable.Unhandled, error) {
		return ask(ctx, e, func(row pgx.CollectableRow) (u durable.Unhandled, err error) {
			var id string
			err = row.Scan(&u.Kind, &id, &u.Due)
			u.Oldest = e.refOf(id)
			return u, err
		}, e.unhandled, []any{mostUnhandled}, hot)
	})
}
