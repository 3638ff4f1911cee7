package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// mostUnhandled is how many kinds Unhandled returns at most.
const mostUnhandled = 100

// Unhandled returns the kinds with a due job for which no worker has a handler.
func (e *engine) Unhandled(ctx context.Context) ([]driver.Unhandled, error) {
	return retry(ctx, e.db, true, func() ([]driver.Unhandled, error) {
		return ask(ctx, e.db, func(row pgx.CollectableRow) (u driver.Unhandled, err error) {
			var id string
			err = row.Scan(&u.Kind, &id, &u.Due)
			u.Oldest = e.refOf(id)
			return u, err
		}, e.unhandled, []any{mostUnhandled}, hot)
	})
}
