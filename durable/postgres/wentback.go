package postgres

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A server goes back when it lacks what it had committed: a standby that lags was promoted, it has
// crashed with synchronous_commit off, or a backup was restored. Then it has claims of a living worker again that the
// worker has ended, and nobody takes them over, for the worker renews its lease. So each worker
// compares its claims with those that its Queue knows, and leaves unknown ones as those of a dead
// worker.
//
// Nothing that the server keeps says for certain that it went back. Three observations do, together:
//
//   - It has started by a recovery that ended before a position of the log that this worker
//     has seen as kept. Each recovery is looked at once. Without one nothing is lost.
//   - The worker's row is older than the last heartbeat that was answered.
//   - After a recovery it has claims that the worker does not know.
//
// The claims are also compared without an observation, since a part of the tables may be put back by other
// means. That reads the jobs that are due, which may be many: there is no index on the holder, since it would
// make all claims and ends dearer. So it takes at most a thousandth of the time.

// compareFactor is how many times as long as a comparison the pause after it is, at least; and urgentFactor
// where there is something to be settled. The time is the shorter one of the last two comparisons: one that has waited
// for a server, as while that starts again, delays nothing.
const (
	compareFactor = 1000
	urgentFactor  = 10
)

// past is what a worker knows of the server's past.
type past struct {
	mu        sync.Mutex    // guards all
	beats     int           // heartbeats that were answered
	seen      bool          // the next two are known
	recovered *int64        // where the recovery ended with which the server has started
	kept      int64         // up to where its log was kept
	suspect   bool          // there was a recovery since the last comparison
	wentBack  string        // an observation that is not reported yet
	apart     bool          // a difference was reported, and no agreement since
	apartAt   int           // beats at that time
	from      time.Time     // of the next comparison
	took      time.Duration // of the last comparison

	comparing atomic.Pointer[map[string]bool] // the jobs whose claims are being compared; nil: none
}

// isCompared reports whether the claim of a job is being compared.
func (p *past) isCompared(id string) bool {
	ids := p.comparing.Load()
	return ids != nil && (*ids)[id]
}

// answered notes a heartbeat, and whether the row was older than the heartbeat before.
func (p *past) answered(older bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beats++
	if older {
		p.goneBack("the worker's row is older than its last heartbeat")
	}
}

// goneBack notes an observation. p.mu is held.
func (p *past) goneBack(seen string) {
	if !p.apart {
		p.wentBack = seen
	}
	p.suspect, p.from = true, time.Time{}
}

// position is a row of log_position.sql.
type position struct {
	Recovered *int64
	Kept      int64
}

func lsn(n int64) string { return fmt.Sprintf("%X/%X", uint64(n)>>32, uint32(n)) }

// learn notes the position of the server's log.
func (p *past) learn(at position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen && at.Recovered != nil && (p.recovered == nil || *at.Recovered != *p.recovered) {
		p.suspect, p.from = true, time.Time{}
		if *at.Recovered < p.kept {
			p.goneBack("the server's log was kept up to " + lsn(p.kept) + ", and its recovery ended at " + lsn(*at.Recovered))
		}
	}
	p.seen, p.recovered, p.kept = true, at.Recovered, at.Kept
}

// compareClaims leaves claims that the Queue does not know as those of a dead worker, if it is time to compare.
func (w *worker) compareClaims(ctx context.Context) {
	p := &w.past
	if w.c.Holds == nil || w.c.Notify == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if at, err := ask(ctx, w.db, pgx.RowToStructByPos[position], w.logPosition, nil); err == nil && len(at) == 1 {
		p.learn(at[0]) // an error: a service that does not show its log
	}
	began := time.Now()
	p.mu.Lock()
	due, beats := !began.Before(p.from), p.beats
	p.mu.Unlock()
	if !due {
		return
	}
	forgotten, err := w.forgetUnknown(ctx)
	if n := p.compared(forgotten, err, beats, w.c.Lease, time.Since(began)); n != nil {
		w.c.Notify(*n)
	}
}

// compared notes a comparison that has taken so long, and returns what is to be reported of it, or nil.
func (p *past) compared(forgotten int, err error, beats int, lease, took time.Duration) *driver.Notice {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := driver.Notice{WentBack: p.wentBack, Forgotten: forgotten}
	if p.wentBack == "" && p.suspect && forgotten > 0 && !p.apart {
		n.WentBack = "after a recovery the server has claims again that had ended"
	}
	p.wentBack = ""
	switch {
	case n.WentBack != "" || forgotten > 0:
		p.apart, p.apartAt = true, p.beats
	case err == nil && p.apart && beats > p.apartAt: // a heartbeat may see the same fall
		p.apart, n.Agreed = false, true
	}
	if err == nil && forgotten == 0 {
		p.suspect = false
	}
	usual := min(took, p.took)
	p.took = took
	switch {
	case err != nil || p.apart:
		p.from = time.Now().Add(urgentFactor * usual)
	default:
		p.from = time.Now().Add(max(lease/3, compareFactor*usual))
	}
	if n.WentBack == "" && n.Forgotten == 0 && !n.Agreed {
		return nil
	}
	return &n
}

// forgetUnknown compares once, and returns how many claims it has left. Until it is over, Claim sends no claim of
// these jobs: of a job that is handed out, and that the server says is claimed, it would be granted the claim that
// is about to be left. The Queue knows the claims that were sent before.
func (w *worker) forgetUnknown(ctx context.Context) (forgotten int, err error) {
	type claim struct {
		ID    string
		Claim int32
	}
	own, err := ask(ctx, w.db, pgx.RowToStructByPos[claim], w.ownClaims, []any{w.id, w.c.Kinds.All()}, hot)
	if err != nil || len(own) == 0 {
		return 0, err
	}
	refs, comparing := make([]driver.Ref, len(own)), make(map[string]bool, len(own))
	for i, c := range own {
		refs[i], comparing[c.ID] = w.refOf(c.ID), true
	}
	w.past.comparing.Store(&comparing)
	defer w.past.comparing.Store(nil)
	var ids []string
	var claims []int32
	for i, known := range w.c.Holds(refs) {
		if !known {
			ids, claims = append(ids, own[i].ID), append(claims, own[i].Claim)
		}
	}
	if len(ids) == 0 {
		return 0, nil
	}
	var freed []driver.LimitKey
	_, err = ask(ctx, w.db, func(row pgx.CollectableRow) (struct{}, error) {
		var limit *int64
		var lane *string
		err := row.Scan(&forgotten, &limit, &lane)
		if limit != nil {
			freed = append(freed, driver.LimitKey{Limit: *limit, Lane: *lane})
		}
		return struct{}{}, err
	}, w.forget, []any{w.id, ids, claims}, hot, forCounters)
	if err != nil {
		return 0, err
	}
	if forgotten > 0 {
		w.announce(announcement{old: true})
	}
	if len(freed) > 0 {
		w.notices.send(driver.Notice{Freed: freed})
	}
	return forgotten, nil
}

// newWorkerID returns an id that no other worker has had, also on a server that went back. Ids are
// positive: see job.holder.
func newWorkerID() int64 { return 1 + rand.Int64N(math.MaxInt64) }
