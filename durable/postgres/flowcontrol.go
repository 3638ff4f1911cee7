package postgres

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// limiter stores and reads the limits and pauses, and the requests to cancel a job that runs. Limits and
// pauses are one row. Each claim names the revision that its caller has read, and
// nothing is claimed by an older one. So which jobs a limit covers is found here, and the
// claims of all others are the statement that they always were. The counts have a row for
// each limit, or lane of it, which the claim and the end of a job change with the job.
//
// It has no lock. Each FlowControl that read holds is immutable, and may be old: the server refuses a
// claim by it. It never changes a count.
type limiter struct {
	*announcer
	read atomic.Pointer[driver.FlowControl] // as they were read last
}

// FlowControl reads the limits and pauses.
func (l *limiter) FlowControl(ctx context.Context) (*driver.FlowControl, error) {
	return retry(ctx, l.db, true, func() (*driver.FlowControl, error) {
		found, err := ask(ctx, l.db, func(row pgx.CollectableRow) (*driver.FlowControl, error) {
			var revision int64
			var text string
			if err := row.Scan(&revision, &text); err != nil {
				return nil, err
			}
			if known := l.read.Load(); known != nil && known.Revision() == revision {
				return known, nil
			}
			return driver.DecodeFlowControl(revision, text)
		}, l.statements.flowControl, nil)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		l.read.Store(found[0]) // a claim by older ones is refused
		return found[0], nil
	})
}

// SetFlowControl stores limits and pauses.
func (l *limiter) SetFlowControl(ctx context.Context, was int64, r *driver.FlowControl) error {
	ids := make([]int64, len(r.Limits()))
	for i, limit := range r.Limits() {
		ids[i] = limit.ID
	}
	type answer struct{ Stored, Before bool }
	_, err := retry(ctx, l.db, true, func() ([]answer, error) {
		a, err := ask(ctx, l.db, pgx.RowToStructByPos[answer], l.setFlowControl, []any{r.Revision(), r.Encode(), ids, was}, hot)
		if err == nil && !a[0].Stored && !a[0].Before {
			err = driver.ErrChanged
		}
		return a, err
	})
	if err != nil {
		return err
	}
	l.notices.send(driver.Notice{FlowControl: true})
	l.fetches.wakeAll(recalled)
	return l.awaitClaims(ctx)
}

// claimSettings is hot for a claim. The lock is shared, and waits for nobody: it tells who changes
// the limits that a claim is under way which may be by those of before.
func claimSettings(schema string) string {
	return fmt.Sprintf("%s, pg_advisory_xact_lock_shared(%d)", hot, claimKey(schema))
}

func claimKey(schema string) int64 { return advisoryKey("claims", schema) }

// awaitClaims waits until the claims are over that are under way. One that begins later finds
// the limits that are stored now. Rejected: taking the lock, since all claims would then wait with
// this one, as long as one of them waits for a permit that a CompleteTx has locked.
func (l *limiter) awaitClaims(ctx context.Context) error {
	under, err := l.claimsUnderWay(ctx)
	for err == nil && len(under) > 0 {
		sleep(ctx, 5*time.Millisecond)
		var now []string
		now, err = l.claimsUnderWay(ctx)
		under = slices.DeleteFunc(under, func(claim string) bool { return !slices.Contains(now, claim) })
	}
	if err != nil {
		err = fmt.Errorf("%w: stored, but claims that began before may not have ended: %w", driver.ErrUncertain, err)
	}
	return err
}

func (l *limiter) claimsUnderWay(ctx context.Context) ([]string, error) {
	return query(ctx, l.db, pgx.RowTo[string], l.claims, []any{claimKey(l.schema)})
}

// Usage reads the counters.
func (l *limiter) Usage(ctx context.Context) ([]driver.Usage, error) {
	return query(ctx, l.db, func(row pgx.CollectableRow) (u driver.Usage, err error) {
		err = row.Scan(&u.Limit, &u.Lane, &u.Taken, &u.TAT, &u.TATBehind, &u.ReservedUntil)
		return u, err
	}, l.usage, nil)
}

// CancelRunning stores the request for a claim's end, and notifies its worker.
func (l *limiter) CancelRunning(ctx context.Context, ref driver.Ref) (bool, error) {
	id, err := l.parse(ref)
	if err != nil {
		return false, err
	}
	found, err := query(ctx, l.db, pgx.RowTo[string], l.cancelRunning, []any{id}, hotBrief)
	if len(found) > 0 {
		l.notices.send(driver.Notice{Canceled: []driver.Ref{ref}})
	}
	return len(found) > 0, err
}

// notifyCanceled notifies the worker of those of its claims that are to be canceled. The next heartbeat
// repeats the call.
func (w *worker) notifyCanceled(ctx context.Context) {
	rows, err := w.conn.Query(ctx, w.statements.canceled, w.id)
	if err != nil {
		return
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(ids) == 0 {
		return
	}
	n := driver.Notice{}
	for _, id := range ids {
		n.Canceled = append(n.Canceled, w.refOf(id))
	}
	go w.c.Notify(n)
}

// needs are the limits of claims, as arrays: for each claim which it needs, and each once.
type needs struct {
	id, lane     []string // of claims
	limitID      []int64
	limits       map[driver.LimitKey]*driver.StoredLimit
	counterLimit []int64 // of counters
	counterLane  []string
	most         []int32
	gap, spare   []int64
}

func (n *needs) add(id, lane string, limits []*driver.StoredLimit) {
	for _, l := range limits {
		p := l.Key(lane)
		n.id, n.limitID, n.lane = append(n.id, id), append(n.limitID, p.Limit), append(n.lane, p.Lane)
		n.limits[p] = l
	}
}

// args returns the keys in the order in which they are locked.
func (n *needs) args() []any {
	order := slices.SortedFunc(maps.Keys(n.limits), func(a, b driver.LimitKey) int {
		return cmp.Or(cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Lane, b.Lane))
	})
	for _, p := range order {
		l, gap := n.limits[p], int64(n.limits[p].Gap())
		most := int32(l.Running)
		if most == 0 {
			most = -1
		}
		n.counterLimit, n.counterLane, n.most = append(n.counterLimit, p.Limit), append(n.counterLane, p.Lane), append(n.most, most)
		n.gap, n.spare = append(n.gap, gap), append(n.spare, max(0, int64(l.Burst-1))*gap)
	}
	return []any{
		n.id, n.limitID, n.lane, n.counterLimit, n.counterLane, n.most, n.gap, n.spare,
		int64(driver.TokenAhead), int64(driver.ReservationLasts), int64(driver.RetryInterval),
	}
}
