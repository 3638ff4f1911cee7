package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/held"
)

// worker claims jobs, and ends them or gives them back. It has a row of its own, whose time is its lease on
// all that it has claimed: an end or a release is that of a claim of its own, by the claim's number.
//
// mu guards the connection of the heartbeats, and is held during one. past has a lock of its own. A worker
// runs no handler, and starts no claim that its Queue did not ask for.
type worker struct {
	*limiter
	c    driver.WorkConfig
	id   int64
	past past
	stay func() bool // keeps Close of the engine from hanging up
	lost sync.Map    // of *handle, by ID: of claims that were not answered

	frequent moment      // until then polls are frequent, though notifications arrive
	active   moment      // until then the worker may have jobs, and does all that a busy one does
	dead     atomic.Bool // the last poll that asked has found a dead worker whose permits are not freed

	mu    sync.Mutex // guards what follows
	conn  *pgx.Conn  // for heartbeats; nil if there is none
	until time.Time  // by the server's clock: the end of the lease, by the last heartbeat that was answered
}

// handle is what the engine has to know of a job that it has handed out.
type handle struct {
	id      string
	claim   int32 // the number of this worker's claim; unknown: maybe; 0: none
	unsaved bool  // an end was written whose answer was lost
	limited bool  // the claim has permits of limits

	superseded atomic.Bool // a claim of this worker is that of another handle
}

// unknown is a claim whose answer was lost. Fetch does not hand out to this worker what it has
// claimed. But if that claim was not written, and the job was dropped, it may be handed out once
// more before it is given back: then what this worker has claimed is another handle's.
const unknown = -1

func handleOf(h *driver.Delivery) *handle { return h.Claim.(*handle) }

// Work registers a worker.
func (e *engine) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	if err := e.usable(); err != nil {
		return nil, err
	}
	if err := driver.CheckWorkerName(c.Name); err != nil {
		return nil, err
	}
	if err := e.migrated(ctx); err != nil {
		return nil, err
	}
	w := &worker{limiter: e.limiter, c: c}
	type answer struct {
		ID    int64
		Until time.Time
	}
	register := func() ([]answer, error) {
		id := newWorkerID()
		return query(ctx, e.db, pgx.RowToStructByPos[answer], e.work, []any{c.Name, micros(c.Lease), c.Kinds.All(), id})
	}
	known, err := register()
	for isCode(err, uniqueViolation) { // another worker has the id
		known, err = register()
	}
	if err != nil {
		return nil, err
	}
	w.id, w.until = known[0].ID, known[0].Until
	w.stay = context.AfterFunc(e.closed, w.hangUp)
	return w, nil
}

// Heartbeat renews the lease, on a connection of its own: a pool that handlers have exhausted
// must not cost the lease. A connection that is silent for a quarter of it is given up, so
// that the next call, on another one, is in time.
func (w *worker) Heartbeat(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, w.c.Lease/4)
	defer cancel()
	if err := w.usable(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn == nil || w.conn.IsClosed() {
		w.closeConn()
		if w.conn, err = w.dialer.dial(ctx); err != nil {
			return err
		}
	}
	var alive, older bool
	var until time.Time
	err = w.conn.QueryRow(ctx, w.heartbeat, w.id, w.c.Name, micros(w.c.Lease), w.c.Kinds.All(), w.until).Scan(&alive, &until, &older)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%w: another worker has the id of this one", driver.ErrClosed)
	case err != nil:
		closeReadOnly(w.conn, err)
		return w.translate(err)
	}
	w.until = until
	w.past.answered(older)
	if w.c.Notify != nil {
		w.notifyCanceled(ctx)
	}
	if !alive {
		return driver.ErrLeaseLost
	}
	return nil
}

// Close ends the worker. Others may take over its jobs at once, and are notified.
func (w *worker) Close(ctx context.Context) error {
	w.stay()
	w.hangUp()
	err := w.do(ctx, w.leave, []any{w.id})
	if err == nil {
		w.announce(announcement{old: true})
	}
	return w.translate(err)
}

func (w *worker) hangUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closeConn()
}

// closeConn closes the connection of the heartbeats, if there is one. w.mu is held.
func (w *worker) closeConn() {
	if w.conn != nil {
		w.dialer.hangUp(w.conn)
		w.conn = nil
	}
}

// laterOnError is when a claim that has failed is asked again.
const laterOnError = 50 * time.Millisecond

// claimTimeout is how long a claim may take.
const claimTimeout = 5 * time.Second

// Claim claims jobs in one commit, and those that limits cover in another beside it, so that
// others do not wait with them. It is not cut off when ctx ends.
func (w *worker) Claim(ctx context.Context, held []*driver.Delivery) []driver.ClaimResult {
	ctx, cancel := uncut(ctx, claimTimeout)
	defer cancel()
	results, todo := make([]driver.ClaimResult, len(held)), make([]int, len(held))
	for i := range held {
		todo[i] = i
	}
	for try := 0; len(todo) > 0; try++ {
		flow, err := w.read.Load(), error(nil)
		if flow == nil || try > 0 {
			flow, err = w.FlowControl(ctx)
		}
		if err != nil || try > 3 { // others change them all the time
			for _, i := range todo {
				results[i] = driver.ClaimResult{Status: driver.RetryLater, After: laterOnError}
			}
			break
		}
		todo = w.claimBy(ctx, flow, held, todo, results)
	}
	return results
}

// claimBy claims some by the limits and pauses, and returns those for which these have changed.
func (w *worker) claimBy(ctx context.Context, flow *driver.FlowControl, held []*driver.Delivery, todo []int, results []driver.ClaimResult) (stale []int) {
	var plain, limited claimArgs
	limited.needs.limits = map[driver.LimitKey]*driver.StoredLimit{}
	now := w.now()
	for _, i := range todo {
		h := held[i]
		limits, paused := flow.Covering(h.Record.Kind, h.Record.Lane, now)
		switch {
		case w.past.isCompared(handleOf(h).id):
			results[i] = driver.ClaimResult{Status: driver.RetryLater, After: laterOnError}
		case len(limits) == 0 && paused == 0:
			plain.add(i, h)
		case !h.Exact:
			results[i] = driver.ClaimResult{Status: driver.Throttled}
		case paused > 0:
			results[i] = driver.Paused(paused)
		default:
			limited.add(i, h)
			limited.needs.add(handleOf(h).id, h.Record.Lane, limits)
		}
	}
	var beside sync.WaitGroup
	if len(limited.ids) > 0 && len(plain.ids) > 0 {
		beside.Go(func() { w.claimSome(ctx, flow, &limited, held, results) })
	} else if len(limited.ids) > 0 {
		w.claimSome(ctx, flow, &limited, held, results)
	}
	if len(plain.ids) > 0 {
		w.claimSome(ctx, flow, &plain, held, results)
	}
	beside.Wait()
	return append(plain.stale, limited.stale...)
}

// claimArgs are the jobs of one statement that claims, as arrays.
type claimArgs struct {
	index    []int // of each in the call
	ids      []string
	versions []int32
	exact    []bool
	needs    needs // none: the statement for those that no limit covers
	stale    []int
}

func (a *claimArgs) add(i int, h *driver.Delivery) {
	a.index, a.ids = append(a.index, i), append(a.ids, handleOf(h).id)
	a.versions, a.exact = append(a.versions, int32(h.Record.Version)), append(a.exact, h.Exact)
}

// claimSome asks for one statement. If one claim is refused, the halves go by themselves.
func (w *worker) claimSome(ctx context.Context, flow *driver.FlowControl, c *claimArgs, held []*driver.Delivery, results []driver.ClaimResult) {
	for _, i := range c.index {
		w.supersede(handleOf(held[i]))
	}
	rows, err := w.askClaim(ctx, flow.Revision(), c)
	if len(c.index) > 1 && refusesOne(err) {
		c.stale = halves(c.index, func(half []int) []int { return w.claimBy(ctx, flow, held, half, results) })
		return
	}
	var superseded []int
	answers := make(map[string]answer, len(rows))
	for _, a := range rows {
		answers[a.id] = a
	}
	for k, i := range c.index {
		a, ok := answers[c.ids[k]]
		switch {
		case err != nil:
			results[i] = driver.ClaimResult{Status: driver.RetryLater, After: laterOnError}
			w.unanswered(handleOf(held[i]))
		case !ok:
			results[i] = driver.ClaimResult{Status: driver.Gone}
		case a.stale && a.Status != driver.Gone && a.Status != driver.Granted:
			c.stale = append(c.stale, i)
		default:
			if h := handleOf(held[i]); a.limited && h.claim != 0 && a.At.IsZero() { // claimed before
				now := w.now()
				limits, _ := flow.Covering(held[i].Record.Kind, held[i].Record.Lane, now)
				a.At = driver.TokenValidBy(limits, now)
			}
			results[i] = a.ClaimResult
			if handleOf(held[i]).learn(a); a.superseded {
				superseded = append(superseded, i)
			}
		}
		if h := handleOf(held[i]); err == nil && (!ok || h.claim != unknown) {
			w.lost.CompareAndDelete(h.id, h)
		}
	}
	if len(superseded) > 0 {
		w.endSuperseded(ctx, held, superseded, results)
	}
}

// askClaim runs the statement that claims. A counter may be locked until a caller's transaction ends, by CompleteTx: other jobs
// must not wait for that in a claim, so it waits no longer than claims and ends of this package take.
func (w *worker) askClaim(ctx context.Context, revision int64, c *claimArgs) ([]answer, error) {
	args := []any{w.id, c.ids, c.versions, c.exact, revision}
	if len(c.needs.id) == 0 {
		return ask(ctx, w.db, readPlain, w.statements.claim, args, w.claimSettings)
	}
	args = append(args, c.needs.args()...)
	if err := w.do(ctx, w.makeCounters, []any{c.needs.counterLimit, c.needs.counterLane}, hot, relaxed); err != nil {
		return nil, err
	}
	rows, err := ask(ctx, w.db, readLimited, w.claimLimited, args, w.claimSettings, forCounters)
	if isCode(err, lockTimeout) {
		rows, err = ask(ctx, w.db, readLimited, w.claimPassing, args, w.claimSettings)
	}
	return rows, err
}

// endSuperseded ends claimed jobs that were superseded before. The claim of one that cannot be ended now is asked
// for again.
func (w *worker) endSuperseded(ctx context.Context, held []*driver.Delivery, indices []int, results []driver.ClaimResult) {
	outs := make([]driver.Completion, len(indices))
	for k, i := range indices {
		outs[k] = driver.DoneWith(held[i], time.Time{})
		outs[k].Uncounted = true // no attempt belongs to the claim
	}
	for k, err := range w.finishNow(ctx, outs) {
		if results[indices[k]] = (driver.ClaimResult{Status: driver.Gone}); err != nil {
			results[indices[k]] = driver.ClaimResult{Status: driver.RetryLater, After: laterOnError}
		}
	}
	w.notifyFreed(pick(held, indices))
}

// unanswered notes that a claim may be written or not.
func (w *worker) unanswered(h *handle) {
	h.claim = unknown
	w.lost.Store(h.id, h)
}

// supersede gives this worker's claim of a job to a handle.
func (w *worker) supersede(h *handle) {
	if other, ok := w.lost.Load(h.id); ok && other != h {
		other.(*handle).superseded.Store(true)
		w.lost.CompareAndDelete(h.id, other)
	}
}

// learn keeps the answer to a claim. A row that was locked has no answer: the lock may be that
// of an earlier claim of this handle, whose answer was lost.
func (h *handle) learn(a answer) {
	switch {
	case a.Status == driver.Granted:
		h.claim, h.limited = a.claim, a.limited
	case a.claim != unknown:
		h.claim = 0
	}
}

// answer is a row of claim.sql.
type answer struct {
	driver.ClaimResult
	id      string
	claim   int32
	stale   bool // the limits or pauses were changed
	limited bool

	superseded bool // a newer job of its key is there, or was and has begun
}

func readPlain(row pgx.CollectableRow) (answer, error) { return readAnswer(row) }

// readLimited reads a row of claim.sql with limits.
func readLimited(row pgx.CollectableRow) (a answer, err error) {
	var at, limit, rest int64 // nanoseconds
	a, err = readAnswer(row, &at, &limit, &rest)
	switch {
	case a.Status == driver.Granted && at > 0:
		a.At = time.Unix(0, at)
	case a.Status == driver.RetryLater && limit > 0:
		a.ClaimResult = driver.ClaimResult{Status: driver.Throttled, Limit: limit, After: time.Duration(rest)}
	}
	return a, err
}

func readAnswer(row pgx.CollectableRow, more ...any) (a answer, err error) {
	var gone, mine bool
	var attempt, crashes int
	var rest float64
	err = row.Scan(append([]any{&a.id, &gone, &mine, &attempt, &a.claim, &rest, &crashes, &a.stale, &a.limited, &a.superseded}, more...)...)
	switch {
	case gone:
		a.ClaimResult = driver.ClaimResult{Status: driver.Gone}
	case mine:
		a.ClaimResult = driver.ClaimResult{Status: driver.Granted, Attempt: attempt}
	case crashes > 0:
		a.ClaimResult = driver.ClaimResult{Status: driver.Suspect, Crashes: crashes}
	default:
		after := time.Duration(rest * float64(time.Second))
		a.ClaimResult = driver.ClaimResult{Status: driver.RetryLater, After: max(after, laterOnError)}
	}
	return a, err
}

// fates are durable's ends as finish.sql has them.
var fates = map[driver.End]int16{driver.Done: 0, driver.Retry: 1, driver.DeadLetter: 2}

// ends are outcomes as arrays.
type ends struct {
	id    []string
	claim []int32
	fate  []int16
	more  []*string // nil: nothing
	after []string  // what next follows
	next  columns
}

// moreOfEnd is what few ends have, as JSON.
type moreOfEnd struct {
	At        *time.Time `json:"at,omitempty"`
	Error     string     `json:"error,omitempty"`
	Errors    string     `json:"errors,omitempty"`
	Uncounted bool       `json:"uncounted,omitempty"`
	Revision  int64      `json:"revision,omitempty"`
	Occurred  *time.Time `json:"occurred,omitempty"`

	// Of a job with a Retain.
	State  int16  `json:"state,omitempty"`
	Ending string `json:"ending,omitempty"`
	Keep   int64  `json:"keep,omitempty"` // In microseconds.
	Bare   bool   `json:"bare,omitempty"` // It leaves its payload.
}

// add adds an end. Done jobs are without what they were, unless they have an Ending.
func (c *ends) add(o *driver.Completion, e *driver.Ending, retention time.Duration) {
	h := handleOf(o.Delivery)
	fate := fates[o.End]
	m := moreOfEnd{At: orNull(o.At), Uncounted: o.Uncounted, Revision: o.Revision, Occurred: orNull(o.Occurred)}
	if o.End != driver.Done || e != nil {
		m.Error, m.Errors = o.Error, jsonOf(o.Errors, len(o.Errors))
	}
	if e != nil {
		keep := o.Delivery.Record.Retain
		if e.State == driver.Dead {
			keep = max(keep, retention)
		} else {
			m.State, m.Bare = states[e.State], !o.Delivery.Record.RetainPayload
		}
		m.Ending, m.Keep = jsonOf(e, 1), micros(keep)
		if o.End == driver.Done {
			fate = fates[driver.DeadLetter]
		}
	}
	c.id, c.claim, c.fate = append(c.id, h.id), append(c.claim, h.claim), append(c.fate, fate)
	c.more = append(c.more, orNone(m))
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
		return driver.ErrChanged
	case r.Busy:
		return errLocked
	}
	return nil
}

// Finish stores ends. If it may wait, it retries ends whose rows are locked, or whose keys are held, for
// a moment.
func (w *worker) Finish(ctx context.Context, outs []driver.Completion) []error {
	w.active.extend(idleAfter)
	errs := w.finishNow(ctx, outs)
	for _, pause := range lockedPauses {
		var left []int
		for i, err := range errs {
			if errors.Is(err, held.Err) {
				left = append(left, i)
			}
		}
		if len(left) == 0 || ctx.Err() != nil || !held.MayWait(ctx) {
			break
		}
		sleep(ctx, pause)
		for k, err := range w.finishNow(ctx, pick(outs, left)) {
			errs[left[k]] = err
		}
	}
	w.announceEnds(outs, errs)
	return errs
}

// finishNow stores ends in one commit, except those that give permits back or take a key again: these are stored after
// the others, which must not wait for another's transaction. The next call tries locked rows again.
func (w *worker) finishNow(ctx context.Context, outs []driver.Completion) []error {
	errs := make([]error, len(outs))
	var others, limited, retaking []int
	for i := range outs {
		switch {
		case retakes(&outs[i]):
			retaking = append(retaking, i)
		case handleOf(outs[i].Delivery).limited:
			limited = append(limited, i)
		default:
			others = append(others, i)
		}
	}
	for _, indices := range [][]int{others, limited, retaking} {
		if len(indices) == 0 {
			continue
		}
		for k, err := range w.finishAll(ctx, pick(outs, indices)) {
			errs[indices[k]] = err
		}
	}
	return errs
}

// finishStatement returns the statement that writes ends down, and its arguments in the order of
// finish.sql. Claims that have permits of limits and jobs of schedules have another one.
func (w *worker) finishStatement(outs []driver.Completion) (statement string, args []any) {
	var c ends
	whole := false
	for i := range outs {
		c.add(&outs[i], outs[i].Ending(w.c.Name, w.now()), w.c.Retention)
		whole = whole || handleOf(outs[i].Delivery).limited || outs[i].Delivery.Record.Schedule != ""
	}
	args = []any{w.id, c.id, c.claim, c.fate, c.more, micros(remembered), micros(w.c.Retention)}
	if !whole {
		return w.statements.finish, args
	}
	return w.finishWhole, append(append(args, c.after), c.next.args()...)
}

// retakes reports whether a job that has left its key takes it again.
func retakes(o *driver.Completion) bool {
	return o.End == driver.Retry && o.Delivery.Record.FreeWhenBegun
}

// finishAll stores ends in one commit. If that fails because of one of them, it stores each half by
// itself, unless all need the same counters. If another job has the key that a retried job takes again, the newer of the two has it.
func (w *worker) finishAll(ctx context.Context, outs []driver.Completion) []error {
	errs, err := w.finishOnce(ctx, outs)
	switch {
	case err == nil || !concernsOne(err), errors.Is(err, held.Err) && haveSameCounters(outs):
	case len(outs) > 1:
		return halves(outs, func(half []driver.Completion) []error { return w.finishAll(ctx, half) })
	case isCode(err, uniqueViolation) && retakes(&outs[0]):
		aside, failed := ask(ctx, w.db, pgx.RowTo[string], w.statements.aside, asideArgs(handleOf(outs[0].Delivery).id, w.c.Name, w.now()), hotBrief)
		if failed != nil {
			return []error{failed}
		}
		out := outs[0]
		if len(aside) == 0 {
			out.End = driver.Done
		}
		errs, _ = w.finishOnce(ctx, []driver.Completion{out})
	}
	return errs
}

// haveSameCounters reports whether ends of jobs with permits wait for the same transactions.
func haveSameCounters(outs []driver.Completion) bool {
	first := outs[0].Delivery
	return handleOf(first).limited && !retakes(&outs[0]) && !slices.ContainsFunc(outs, func(o driver.Completion) bool {
		return o.Delivery.Record.Kind != first.Record.Kind || o.Delivery.Record.Lane != first.Record.Lane
	})
}

// finishOnce stores ends whose rows are not locked: finishNow has divided them. The error besides those of the ends is
// that of the commit.
func (w *worker) finishOnce(ctx context.Context, outs []driver.Completion) ([]error, error) {
	statement, args := w.finishStatement(outs)
	settings := []string{hot}
	switch {
	case retakes(&outs[0]):
		settings = []string{brief, hot}
	case handleOf(outs[0].Delivery).limited:
		settings = []string{forCounters, hot}
	}
	uncertain := false // of all tries: one that was lost may have written the ends down
	rows, err := retry(ctx, w.db, true, func() ([]endedRow, error) {
		rows, err := ask(ctx, w.db, pgx.RowToStructByPos[endedRow], statement, args, settings...)
		err = asHeldBy(err, settings)
		uncertain = uncertain || err != nil && judge(err) == lost
		return rows, err
	})
	for _, o := range outs {
		h := handleOf(o.Delivery)
		h.unsaved = h.unsaved || uncertain
	}
	ended := make(map[string]error, len(rows))
	for _, r := range rows {
		ended[r.ID] = r.error()
	}
	errs := make([]error, len(outs))
	for i, o := range outs {
		h := handleOf(o.Delivery)
		locked, there := ended[h.id]
		switch {
		case err != nil:
			errs[i] = err
		case there:
			errs[i] = locked
		case !h.unsaved:
			errs[i] = driver.ErrLeaseLost
		}
	}
	return errs, err
}

// asHeldBy gives the error of a wait that the settings bound its name, also if the server does not say for which row: of two
// that wait for one row, the second is not told.
func asHeldBy(err error, settings []string) error {
	if len(settings) > 1 && isCode(err, lockTimeout) {
		return fmt.Errorf("%w: %w", held.Err, err)
	}
	return err
}

// announceEnds announces the retries and occurrences that follow from ends, if they are due soon,
// and notifies workers of the permits that the ends freed.
func (w *worker) announceEnds(outs []driver.Completion, errs []error) {
	soon := w.now().Add(window)
	a := announcementOf(nil, false)
	for i, o := range outs {
		if errs[i] == nil && o.End == driver.Retry && o.At.Before(soon) {
			a.add(o.Delivery.Record.Kind, o.At)
		}
		if errs[i] == nil && o.Next != nil && o.Next.Due.Before(soon) {
			a.add(o.Next.Kind, o.Next.Due)
		}
	}
	if len(a.kinds) > 0 {
		w.announce(a)
	}
	var freed []*driver.Delivery
	for i, o := range outs {
		if errs[i] == nil || errors.Is(errs[i], driver.ErrLeaseLost) { // or CompleteTx has ended it
			freed = append(freed, o.Delivery)
		}
	}
	w.notifyFreed(freed)
}

// notifyFreed notifies workers of the limits that may have a free permit.
func (w *worker) notifyFreed(held []*driver.Delivery) {
	var n driver.Notice
	for _, h := range held {
		if !handleOf(h).limited {
			continue
		}
		limits, _ := w.read.Load().Covering(h.Record.Kind, h.Record.Lane, w.now())
		for _, l := range limits {
			if l.Running > 0 {
				n.Freed = append(n.Freed, l.Key(h.Record.Lane))
			}
		}
	}
	if len(n.Freed) > 0 {
		w.notices.send(n)
	}
}

// Release gives back, and once more while there is a row that is locked. A job that was given
// back before has no holder any more, so that it is not given back twice. The order in
// which it locks rows is that of the other statements. If one of several has to wait for its
// key, or for a counter, each half goes by itself.
func (w *worker) Release(ctx context.Context, held []*driver.Delivery, after time.Duration) error {
	ids, claims := make([]string, len(held)), make([]int32, len(held))
	settings := []string{hot}
	switch {
	case slices.ContainsFunc(held, func(h *driver.Delivery) bool { return h.Record.FreeWhenBegun }):
		settings = []string{brief, hot}
	case slices.ContainsFunc(held, func(h *driver.Delivery) bool { return handleOf(h).limited }):
		settings = []string{forCounters, hot}
	}
	w.frequent.extend(max(after, 0) + w.c.Lease/leaseFactor + window)
	_, err := retry(ctx, w.db, true, func() ([]bool, error) {
		for i := range held {
			h := handleOf(held[i])
			if ids[i], claims[i] = h.id, h.claim; h.claim == unknown && h.superseded.Load() {
				claims[i] = 0
			}
		}
		busy, err := ask(ctx, w.db, pgx.RowTo[bool], w.statements.release, []any{w.id, ids, claims, micros(max(after, 0)), w.read.Load().Revision()}, settings...)
		if err == nil && busy[0] {
			err = errLocked
		}
		return busy, asHeldBy(err, settings)
	})
	if n := len(held) / 2; n > 0 && err != nil && concernsOne(err) && !errors.Is(err, errLocked) {
		return errors.Join(w.Release(ctx, held[:n], after), w.Release(ctx, held[n:], after))
	}
	if err == nil && after <= 0 {
		kinds := make([]string, len(held))
		for i, h := range held {
			kinds[i] = h.Record.Kind
		}
		w.announce(announcementOf(kinds, true))
	}
	if err == nil {
		for i, claim := range claims {
			if claim == unknown {
				w.lost.CompareAndDelete(ids[i], handleOf(held[i]))
			}
		}
		w.notifyFreed(held)
	}
	return err
}
