package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable"
)

// worker claims and runs jobs. It has a row of its own, whose time is its lease on all
// that it has claimed.
type worker struct {
	e    *Engine
	c    durable.WorkConfig
	id   int64
	stay func() bool // has Close of the engine not hang up

	mu   sync.Mutex // guards line
	line *pgx.Conn  // for beats; nil if there is none
}

// handle is what the engine has to know of a job that it has handed out.
type handle struct {
	id      string
	claim   int32 // the number of this worker's claim; unknown: maybe; 0: none
	unsaved bool  // an end was written whose answer was lost
}

// unknown is a claim whose answer was lost. No other Held of the job can be claimed by
// this worker: what it has claimed Feed does not hand out to it.
const unknown = -1

func handleOf(h *durable.Held) *handle { return h.Handle.(*handle) }

// Work makes a worker known.
func (e *Engine) Work(ctx context.Context, c durable.WorkConfig) (durable.Worker, error) {
	if err := e.usable(); err != nil {
		return nil, err
	}
	if err := e.migrated(ctx); err != nil {
		return nil, err
	}
	w := &worker{e: e, c: c}
	ids, err := retry(ctx, e, true, func() ([]int64, error) {
		return ask(ctx, e, pgx.RowTo[int64], e.work, []any{c.Name, micros(c.Lease), c.Kinds.All()})
	})
	if err != nil {
		return nil, err
	}
	w.id = ids[0]
	w.stay = context.AfterFunc(e.closed, w.hangUp)
	return w, nil
}

// Beat renews the lease, on a connection of its own: a pool that handlers have exhausted
// must not cost the lease. A connection that is silent for a quarter of it is given up, so
// that the next call, on another one, is in time.
func (w *worker) Beat(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, w.c.Lease/4)
	defer cancel()
	if err := w.e.usable(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.line == nil || w.line.IsClosed() {
		if w.line, err = w.e.dial(ctx); err != nil {
			return err
		}
	}
	var alive bool
	if err := w.line.QueryRow(ctx, w.e.beat, w.id, w.c.Name, micros(w.c.Lease), w.c.Kinds.All()).Scan(&alive); err != nil {
		return err
	}
	if !alive {
		return durable.ErrLeaseLost
	}
	return nil
}

// Close ends the worker. What it has others may have at once, and are told.
func (w *worker) Close(ctx context.Context) error {
	w.stay()
	w.hangUp()
	err := w.e.do(ctx, w.e.leave, []any{w.id})
	if err == nil {
		w.e.ring(news{old: true})
	}
	return err
}

func (w *worker) hangUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.line != nil {
		hangUp(w.line)
		w.line = nil
	}
}

// laterOnError is when a claim that has failed is asked again.
const laterOnError = 50 * time.Millisecond

// claimTimeout is how long a claim may take.
const claimTimeout = 5 * time.Second

// Claim claims jobs in one commit. It is not cut off when ctx ends.
func (w *worker) Claim(ctx context.Context, held []*durable.Held) []durable.Verdict {
	ctx, cancel := finishing(ctx, claimTimeout)
	defer cancel()
	ids, versions, exact := make([]string, len(held)), make([]int32, len(held)), make([]bool, len(held))
	for i, h := range held {
		ids[i], versions[i], exact[i] = handleOf(h).id, int32(h.Record.Version), h.Exact
	}
	rows, err := ask(ctx, w.e, readVerdict, w.e.statements.claim, []any{w.id, ids, versions, exact}, hot)
	answers := make(map[string]answer, len(rows))
	for _, a := range rows {
		answers[a.id] = a
	}
	verdicts := make([]durable.Verdict, len(held))
	for i, h := range held {
		a, ok := answers[ids[i]]
		switch {
		case err != nil:
			verdicts[i] = durable.Verdict{Claimed: durable.Later, After: laterOnError}
			handleOf(h).claim = unknown
		case !ok:
			verdicts[i] = durable.Verdict{Claimed: durable.Gone}
		default:
			verdicts[i] = a.Verdict
			handleOf(h).note(a)
		}
	}
	return verdicts
}

// note keeps what a claim has said. Of a row that was locked it has said nothing: who has
// it locked may be an earlier claim of this handle, whose answer was lost.
func (h *handle) note(a answer) {
	switch {
	case a.Claimed == durable.Mine:
		h.claim = a.claim
	case a.claim != unknown:
		h.claim = 0
	}
}

// answer is a row of claim.sql.
type answer struct {
	durable.Verdict
	id    string
	claim int32
}

func readVerdict(row pgx.CollectableRow) (a answer, err error) {
	var gone, mine bool
	var attempt, crashes int
	var rest float64
	err = row.Scan(&a.id, &gone, &mine, &attempt, &a.claim, &rest, &crashes)
	switch {
	case gone:
		a.Verdict = durable.Verdict{Claimed: durable.Gone}
	case mine:
		a.Verdict = durable.Verdict{Claimed: durable.Mine, Attempt: attempt}
	case crashes > 0:
		a.Verdict = durable.Verdict{Claimed: durable.Suspect, Crashes: crashes}
	default:
		after := time.Duration(rest * float64(time.Second))
		a.Verdict = durable.Verdict{Claimed: durable.Later, After: max(after, laterOnError)}
	}
	return a, err
}

// fates are durable's ends as finish.sql has them.
var fates = map[durable.End]int16{durable.Done: 0, durable.Again: 1, durable.Buried: 2}

// ends are outcomes as arrays.
type ends struct {
	id, error, after []string
	claim            []int32
	fate             []int16
	at               []time.Time
	uncounted        []bool
	errors           []string
	revision         []int64
	occurred         []*time.Time
	next             columns
}

func (c *ends) add(o *durable.Outcome) {
	h := handleOf(o.Held)
	c.id, c.claim, c.fate = append(c.id, h.id), append(c.claim, h.claim), append(c.fate, fates[o.End])
	c.at, c.error, c.uncounted = append(c.at, o.At), append(c.error, o.Error), append(c.uncounted, o.Uncounted)
	c.revision, c.occurred = append(c.revision, o.Revision), append(c.occurred, orNull(o.Occurred))
	c.errors = append(c.errors, jsonOf(o.Errors, len(o.Errors)))
	if o.Next != nil {
		c.after = append(c.after, h.id)
		c.next.add(o.Next)
	}
}

// endedRow is a row of finish.sql.
type endedRow struct {
	ID      string
	Busy    bool
	Changed bool // the schedule that it is an occurrence of
}

// error is what a row says of its end.
func (r *endedRow) error() error {
	switch {
	case r.Changed:
		return durable.ErrChanged
	case r.Busy:
		return errLocked
	}
	return nil
}

// lockedPauses are those between the tries of an end whose row is locked: for a moment, as
// by another's claim that comes too late, or by one who stays.
var lockedPauses = []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond, 320 * time.Millisecond}

// Finish writes ends down in one commit. Those whose rows are locked are tried again for a
// moment; then they are left for the next call, so that the others need not wait.
func (w *worker) Finish(ctx context.Context, outs []durable.Outcome) []error {
	errs := w.finishOnce(ctx, outs)
	for _, pause := range lockedPauses {
		var locked []int
		for i, err := range errs {
			if errors.Is(err, errLocked) {
				locked = append(locked, i)
			}
		}
		if len(locked) == 0 || ctx.Err() != nil {
			break
		}
		sleep(ctx, pause)
		for k, err := range w.finishOnce(ctx, pick(outs, locked)) {
			errs[locked[k]] = err
		}
	}
	w.tell(outs, errs)
	return errs
}

// finishArgs are in the order of finish.sql.
func (w *worker) finishArgs(outs []durable.Outcome) []any {
	var c ends
	for i := range outs {
		c.add(&outs[i])
	}
	args := []any{w.id, c.id, c.claim, c.fate, c.at, c.error, micros(w.c.Retention), micros(remembered), c.after, c.uncounted}
	return append(append(args, c.next.args()...), c.revision, c.occurred, c.errors)
}

// finishOnce writes down what is not locked.
func (w *worker) finishOnce(ctx context.Context, outs []durable.Outcome) []error {
	args := w.finishArgs(outs)
	uncertain := false // of all tries: one that was lost may have written the ends down
	rows, err := retry(ctx, w.e, true, func() ([]endedRow, error) {
		rows, err := ask(ctx, w.e, pgx.RowToStructByPos[endedRow], w.e.statements.finish, args, hot)
		uncertain = uncertain || err != nil && judge(err) == lost
		return rows, err
	})
	ended := make(map[string]error, len(rows))
	for _, r := range rows {
		ended[r.ID] = r.error()
	}
	errs := make([]error, len(outs))
	for i, o := range outs {
		h := handleOf(o.Held)
		h.unsaved = h.unsaved || uncertain
		locked, there := ended[h.id]
		switch {
		case err != nil:
			errs[i] = err
		case there:
			errs[i] = locked
		case !h.unsaved:
			errs[i] = durable.ErrLeaseLost
		}
	}
	return errs
}

// tell wakes the Feeds if something that follows from an end is due soon.
func (w *worker) tell(outs []durable.Outcome, errs []error) {
	soon := w.e.now().Add(window)
	var kinds []string
	for i, o := range outs {
		if errs[i] == nil && o.End == durable.Again && o.At.Before(soon) {
			kinds = append(kinds, o.Held.Record.Job.Kind)
		}
		if errs[i] == nil && o.Next != nil && o.Next.Due.Before(soon) {
			kinds = append(kinds, o.Next.Job.Kind)
		}
	}
	if len(kinds) > 0 {
		w.e.ring(newsOf(kinds, false))
	}
}

// Release gives back, and once more while there is a row that is locked. What was given
// back before has no holder any more, so that it is not given back twice. The order in
// which it locks rows is that of the other statements.
func (w *worker) Release(ctx context.Context, held []*durable.Held, after time.Duration) error {
	ids, claims := make([]string, len(held)), make([]int32, len(held))
	for i, h := range held {
		ids[i], claims[i] = handleOf(h).id, handleOf(h).claim
	}
	_, err := retry(ctx, w.e, true, func() ([]bool, error) {
		busy, err := ask(ctx, w.e, pgx.RowTo[bool], w.e.statements.release, []any{w.id, ids, claims, micros(max(after, 0))}, hot)
		if err == nil && busy[0] {
			err = errLocked
		}
		return busy, err
	})
	if err == nil && after <= 0 {
		kinds := make([]string, len(held))
		for i, h := range held {
			kinds[i] = h.Record.Job.Kind
		}
		w.e.ring(newsOf(kinds, true))
	}
	return err
}
