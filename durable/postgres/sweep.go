package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

const (
	sweepEvery  = 2 * time.Second
	idleAfter   = 10 * time.Second // after its last job a worker does less
	expireEvery = 30 * time.Second
	sweepSize   = 10000 // jobs that one statement reads
)

// sweepUntil removes what has ended, until ctx ends, and frees what hung connections have
// locked for a third of the lease, and the permits of the dead, and compares the worker's claims. Each worker does, but not at
// one time. The next pass does what fails.
func (w *worker) sweepUntil(ctx context.Context, l *listener) {
	expired := time.Now()
	for ctx.Err() == nil && w.closed.Err() == nil {
		w.compareClaims(ctx)
		endHung(ctx, w.db, w.c.Lease/3)
		sweepPass(ctx, w.db, w.sweep)
		w.sweepPermits(ctx)
		if time.Since(expired) > expireEvery {
			expired = time.Now()
			sweepPass(ctx, w.db, w.expire)
		}
		w.untilNextSweep(ctx, l)
	}
}

// untilNextSweep waits for sweepEvery, or for a third of a lease while the worker has no job and notifications arrive. It
// waits no longer once a worker has died. When the server restarts, notifications end.
func (w *worker) untilNextSweep(ctx context.Context, l *listener) {
	for longest := time.Now().Add(min(w.c.Lease/3, idleAfter) - sweepEvery/2); ; {
		sleep(ctx, sweepEvery)
		if ctx.Err() != nil || !time.Now().Before(longest) || w.active.holds() || !l.arrival.holds() || w.dead.Load() {
			return
		}
	}
}

// sweepPass runs a statement until it finds less than it may. It does not wait for the
// disk: what a crash brings back is removed once more.
func sweepPass(ctx context.Context, d *db, statement string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	args := []any{bornID(d.now().Add(-sweepAfter)), sweepSize}
	for n := sweepSize; n == sweepSize; {
		seen, err := ask(ctx, d, pgx.RowTo[int], statement, args, hot, relaxed)
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
func endHung(ctx context.Context, d *db, after time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = d.do(ctx, d.hung, []any{d.tag, micros(after)}, loginRole)
}

// loginRole goes back to the role that has logged in, until the transaction ends: the server shows and ends
// connections of that role, which a hook of the pool may have left for another.
const loginRole = "select set_config('role', 'none', true)"

// sweepPermits frees the permits of dead workers' claims, and notifies the workers. The next pass does it if a transaction has
// locked a counter: the statement has locked the jobs and the dead workers, and nobody takes a job over while it waits.
func (w *worker) sweepPermits(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	freed, err := ask(ctx, w.db, pgx.RowToStructByPos[driver.LimitKey], w.freeDead, []any{w.id}, hot, forCounters)
	if err == nil && len(freed) > 0 {
		w.notices.send(driver.Notice{Freed: freed})
	}
}
