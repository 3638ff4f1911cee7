package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

const (
	sweepEvery  = 2 * time.Second
	expireEvery = 30 * time.Second
	sweepSize   = 10000 // jobs that one statement reads
)

// sweepUntil removes what has ended, until ctx ends, and frees what hung connections have
// locked for a third of the lease, and the permits of the dead, and compares the worker's claims. Each worker does, but not at
// one time. The next pass does what fails.
func (w *worker) sweepUntil(ctx context.Context) {
	e := w.e
	expired := time.Now()
	for ctx.Err() == nil && e.closed.Err() == nil {
		w.compareClaims(ctx)
		e.endHung(ctx, w.c.Lease/3)
		e.sweepPass(ctx, e.sweep)
		w.sweepPermits(ctx)
		if time.Since(expired) > expireEvery {
			expired = time.Now()
			e.sweepPass(ctx, e.expire)
		}
		sleep(ctx, sweepEvery)
	}
}

// sweepPass runs a statement until it finds less than it may. It does not wait for the
// disk: what a crash brings back is removed once more.
func (e *engine) sweepPass(ctx context.Context, statement string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	args := []any{bornID(e.now().Add(-sweepAfter)), sweepSize}
	for n := sweepSize; n == sweepSize; {
		seen, err := ask(ctx, e.db, pgx.RowTo[int], statement, args, hot, relaxed)
		if err != nil || len(seen) == 0 {
			return
		}
		n = seen[0]
	}
}

// endHung ends connections, of whatever process, that have waited for their client for so
// long in the middle of a statement that has locked rows: when a network loses the rest of
// what was sent, or no longer takes the answer. Both ends may go on for long: the server
// knows nothing of the lease. A caller that waits for an answer there has given up, or gets
// an error.
func (e *engine) endHung(ctx context.Context, after time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = e.do(ctx, e.hung, []any{e.tag, micros(after)}, loginRole)
}

// loginRole goes back to the role that has logged in, until the transaction ends: the server shows and ends
// connections of that role, which a hook of the pool may have left for another.
const loginRole = "select set_config('role', 'none', true)"

// sweepPermits frees the permits of dead workers' claims, and notifies the workers.
func (w *worker) sweepPermits(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	freed, err := ask(ctx, w.e.db, pgx.RowToStructByPos[driver.LimitKey], w.e.freeDead, []any{w.id}, hot)
	if err == nil && len(freed) > 0 {
		w.e.notices.send(driver.Notice{Freed: freed})
	}
}
