package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// worker claims and runs jobs. It is known to others by one message of the subject
// w.<name>, which it writes anew with every heartbeat: whoever finds a job claimed looks there
// whether its worker lives, by the server's time of that message.
type worker struct {
	e *engine
	c driver.WorkConfig
	budgets

	mu         sync.Mutex
	heartbeats []stored   // the last one of each partition, as the server has it
	over       bool       // a heartbeat has found the lease over, and Heartbeat has not said so yet
	life       life       // what heartbeats say
	deferred   []deferred // recall.go
	backs      []int64    // history.backs of the heartbeats

	claims      []claims // of each partition, as all of this; reconcile.go
	reconciling []reconciling
	comparing   sync.WaitGroup
	apart       atomic.Int64    // partitions that are being compared
	open        context.Context // ends with Close
	shut        context.CancelFunc

	others atomic.Int64 // workers beside this one, as far as it is known
}

// handle is what the engine has to know of a job that it has handed out.
type handle struct {
	p      *part
	at     location
	acks   string    // where the message is acknowledged
	since  time.Time // when it was handed out
	steps  int64     // of the clock before that
	again  bool      // not for the first time, so that it may have ended long ago
	seq    uint64    // of the message
	backs  int64     // how often its stream had gone back
	record *driver.Record
	data   []byte // the message that record was read from
	number uint64 // among all handles of this process, once it was to be claimed
	status status // of the claim, or of what was to be one: then its sequence is 0
	of     int64  // how often the stream had gone back before status was written
	ending string // the token of its end, however often that is written; "" before
	unsure bool   // the answer to a claim was lost, and its status is not read yet
}

var handles atomic.Uint64

// token is that of a claim in a call. It names the handle: one worker may be handed a job once
// more while it gives back what it has dropped, and the claim of the one is not the other's.
func (h *handle) token(call string) string {
	if h.number == 0 {
		h.number = handles.Add(1)
	}
	return call + "." + strconv.FormatUint(h.number, 36)
}

// staleAge is the age from which the mark of a bucket does not say any more whether what
// was handed out of it may be claimed: the bucket may have been closed, and the mark be
// gone by now. It is much less than what a mark lasts.
const staleAge = time.Hour

// stale reports whether a job was handed out so long ago, by this machine's clocks: one
// stands still while the machine is suspended, and the other may be set. When the
// server's clock was set forward since, marks may be gone as well.
func (h *handle) stale() bool {
	now := time.Now()
	age := max(now.Sub(h.since), now.Round(0).Sub(h.since.Round(0)))
	return age > h.p.staleAge || h.steps != h.p.clock.Step().Count
}

func (e *engine) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	if !validName(c.Name) || len(c.Name) > driver.MaxWorker {
		return nil, fmt.Errorf("%w: the worker's name %.300q is not letters, digits, - and _, of at most %d", driver.ErrInvalid, c.Name, driver.MaxWorker)
	}
	w := &worker{e: e, c: c, budgets: newBudgets(), heartbeats: make([]stored, len(e.parts)), backs: make([]int64, len(e.parts)), life: newLife(c)}
	w.expectNothing()
	for {
		err := w.Heartbeat(ctx)
		if err == nil || errors.Is(err, driver.ErrLeaseLost) { // between two tries: nothing is claimed yet
			return w, nil
		}
		if ctx.Err() != nil || !isUnanswered(err) {
			return nil, err
		}
		e.parts[0].wait(ctx, 100*time.Millisecond)
	}
}

// isUnanswered reports whether there was no answer, so that it is worth asking again.
func isUnanswered(err error) bool {
	return (errors.Is(err, driver.ErrUncertain) || errors.Is(err, context.DeadlineExceeded)) && !isDenial(err)
}

// Heartbeat writes the message anew, and reads when the server stored it: if that is
// longer than a lease after the heartbeat before, the lease had ended in between. A
// server whose clock is set forward by as much has the same effect, and costs a lease. It
// says so when the lease is renewed in all partitions: from then on jobs of all may
// begin.
func (w *worker) Heartbeat(ctx context.Context) error {
	err := w.each(func(p *part) error {
		written, err := w.writeHeartbeat(ctx, p)
		if err != nil {
			return err
		}
		now, err := p.lastSince(ctx, written, written.subject, false)
		if err != nil {
			return err
		}
		if err := p.clock.Sync(ctx); err != nil {
			return err
		}
		w.noteHeartbeat(p, now)
		w.reconcile(p)
		asking, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		_ = w.notifyCanceled(asking, p) // or the next heartbeat does: the lease is renewed
		if p == w.e.parts[0] {
			_, _ = w.e.flowControlSince(asking, p, written)
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		w.over = false
		return driver.ErrLeaseLost
	}
	return nil
}

// writeHeartbeat writes the heartbeat of a partition, and returns it as a witness.
func (w *worker) writeHeartbeat(ctx context.Context, p *part) (witness, error) {
	own, _ := w.own(life{})
	data, err := json.Marshal(own)
	if err != nil {
		return witness{}, err
	}
	subject := p.workerSubject(w.c.Name)
	written, err := p.writeSeq(ctx, write{subject: subject, data: data, rollup: true, ttl: 2*w.c.Lease + 10*time.Second})
	return witness{subject, written}, err
}

// noteHeartbeat notes a heartbeat, and whether the lease was over before. Of two heartbeats at one time the
// later one tells.
func (w *worker) noteHeartbeat(p *part, now stored) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.heartbeats[p.number]
	if backs := p.history.now().backs; w.backs[p.number] != backs {
		w.backs[p.number], before = backs, stored{}
	}
	if now.Seq <= before.Seq {
		return
	}
	w.heartbeats[p.number] = now
	w.over = w.over || before.Seq > 0 && now.Time.Sub(before.Time) > w.c.Lease
}

func (w *worker) Close(ctx context.Context) error {
	w.compareNoMore()
	w.recall() // nobody would when the limits or pauses change
	return w.each(func(p *part) error { return p.purge(ctx, p.workerSubject(w.c.Name), 0) })
}

// each calls f for all partitions at once.
func (w *worker) each(f func(p *part) error) error {
	errs := make([]error, len(w.e.parts))
	var wg sync.WaitGroup
	for i, p := range w.e.parts[1:] {
		wg.Go(func() { errs[i+1] = f(p) })
	}
	errs[0] = f(w.e.parts[0])
	wg.Wait()
	return errors.Join(errs...)
}

// sighting is a heartbeat that was seen here first at a time of this machine's clock.
type sighting struct {
	seq uint64 // the sequence of its message; 0 for none
	at  time.Time
}

// leaseOf returns for how long a worker's lease is not over. It is over if there is no
// message: that of a worker that has taken leave is removed, that of one that died is
// kept for longer than its lease.
//
// That is so by the server's clock, if that was not set. It was if a heartbeat lies in the
// future; and a clock that is set forward makes heartbeats look old, or removes them. Then a
// heartbeat is watched by the clock of this machine: if it is the same for the length of a
// lease, that is over.
//
// Before a lease is said to be over the heartbeat is read once more, as of now: a leader that
// was deposed and does not know shows old ones. The clock is read before each poll: a heartbeat
// that comes after that is in time.
func (w *worker) leaseOf(ctx context.Context, p *part, worker string) (time.Duration, error) {
	now, off := p.clock.Now()
	m, err := p.last(ctx, p.workerSubject(worker))
	if err != nil {
		return 0, err
	}
	if left, err := w.leaseBy(p, worker, now.Add(-off), m); err != nil || left > 0 {
		return left, err
	}
	if err := p.clock.Sync(ctx); err != nil { // it may have been set this moment
		return 0, err
	}
	if p.replicas > 1 && worker != w.c.Name {
		written, err := w.writeHeartbeat(ctx, p)
		if err != nil {
			return 0, err
		}
		now, off = p.clock.Now()
		if m, err = p.lastSince(ctx, written, p.workerSubject(worker), false); err != nil {
			return 0, err
		}
	}
	return w.leaseBy(p, worker, now.Add(-off), m)
}

// leaseBy is leaseOf by the heartbeat that was read, at a time that is not later than the server's.
func (w *worker) leaseBy(p *part, worker string, now time.Time, m stored) (time.Duration, error) {
	l := life{Lease: w.c.Lease} // one that is not there any more is taken to have had the same
	if m.Seq > 0 {
		if err := json.Unmarshal(m.Data, &l); err != nil {
			return 0, fmt.Errorf("%w: cannot read a worker's lease: %w", driver.ErrStorage, err)
		}
	}
	unchanged := p.unchangedFor(worker, m.Seq)
	switch step := p.clock.Step(); {
	case step.Count > 0 && time.Since(step.Seen) <= l.Lease:
		return l.Lease - unchanged, nil
	case m.Seq == 0:
		return 0, nil
	}
	return min(p.serverTime(m.Time).Add(l.Lease).Sub(now), l.Lease-unchanged), nil
}

// unchangedFor returns for how long a worker's heartbeat has been the same, as far as it was polled
// from here.
func (p *part) unchangedFor(worker string, seq uint64) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.sightings[worker]; ok && s.seq == seq {
		return time.Since(s.at)
	}
	maps.DeleteFunc(p.sightings, func(_ string, s sighting) bool { return time.Since(s.at) > time.Hour })
	p.sightings[worker] = sighting{seq: seq, at: time.Now()}
	return 0
}

func (w *worker) Claim(ctx context.Context, held []*driver.Delivery) []driver.ClaimResult {
	results := make([]driver.ClaimResult, len(held))
	spread(w.e, len(held), func(i int) *part { return held[i].Claim.(*handle).p }, func(p *part, indices []int) {
		for k, v := range w.claim(ctx, p, pick(held, indices)) {
			results[indices[k]] = v
		}
	})
	return results
}

// claim claims jobs: those that limits cover first.
func (w *worker) claim(ctx context.Context, p *part, held []*driver.Delivery) []driver.ClaimResult {
	results := make([]driver.ClaimResult, len(held))
	if p.checkDisk() != nil { // nothing can be claimed before there is room
		for i := range results {
			results[i] = driver.ClaimResult{Status: driver.RetryLater, After: time.Second}
		}
		return results
	}
	token, flow := rand.Text(), w.e.lastFlowControl()
	all := make([]*claimRequest, len(held))
	var limited, free []*claimRequest
	for i, h := range held {
		if all[i] = newClaimRequest(flow, h); len(all[i].limits) > 0 {
			limited = append(limited, all[i])
		} else {
			free = append(free, all[i])
		}
	}
	w.claimLimited(ctx, p, limited, token)
	w.claimAll(ctx, p, free, token)
	for i, j := range all {
		results[i] = j.result
	}
	w.applyLimits(ctx, p, held, results, flow)
	w.claims[p.number].answered(held, results)
	return results
}

// claimOf is the status of a claim, after so many attempts and crashes. Nothing is
// attempt 2 of 1: the claim of a job whose last attempt never ended is there for its
// burial.
func (w *worker) claimOf(h *driver.Delivery, token string, begun, crashes int) status {
	attempt := min(begun, h.Record.MaxAttempts) + 1
	return status{fate: claimed, token: h.Claim.(*handle).token(token), worker: w.c.Name, attempt: attempt, crashes: crashes, exact: h.Exact}
}

// statusesOf looks up what became of jobs. It may miss what is new; what is final stays so.
func (p *part) statusesOf(ctx context.Context, held []*driver.Delivery) []status {
	statuses := make([]status, len(held))
	subjects := make([]string, len(held))
	for i, h := range held {
		subjects[i] = p.fateSubject(h.Claim.(*handle).at)
	}
	found, err := p.lasts(ctx, subjects)
	if err != nil {
		return statuses // the claim will tell
	}
	for i, subject := range subjects {
		m, ok := found[subject]
		if !ok {
			continue
		}
		if s, err := decodeStatus(m.Data, m.Seq); err == nil {
			statuses[i] = s
		}
	}
	return statuses
}

// statusesAmong is statusesOf for those that are not handed out for the first time, or that
// were long ago. A job that waits for a limit waits long, and may have come to another worker, too,
// since.
func (p *part) statusesAmong(ctx context.Context, held []*driver.Delivery) []status {
	statuses := make([]status, len(held))
	var again []int
	for i, h := range held {
		if hd := h.Claim.(*handle); hd.again || h.Exact && time.Since(hd.since) > heldLong {
			again = append(again, i)
		}
	}
	for k, s := range p.statusesOf(ctx, pick(held, again)) {
		statuses[again[k]] = s
	}
	return statuses
}

// heldLong is from when on it is of use to ask whether what is held has ended.
const heldLong = time.Second

var errBucketClosed = errors.New("jetstream: the bucket is closed")

// stillOpen looks for the mark of a job's bucket, as of when the job was claimed.
func (p *part) stillOpen(ctx context.Context, hd *handle) error {
	claim := witness{p.fateSubject(hd.at), hd.status.seq}
	mark, err := p.lastSince(ctx, claim, p.nearMark(hd.at.bucket), true)
	if err == nil && mark.Seq > 0 {
		return errBucketClosed
	}
	return err
}

// confirm ends a claim that has created its status. If the bucket was closed, the job had
// ended before and that was forgotten: a worker that was frozen between Fetch and Claim is
// told here. Its status is removed. Of a stale handle the bucket's mark says
// nothing, so the job's message itself is looked for.
func (w *worker) confirm(ctx context.Context, h *driver.Delivery, open error) driver.ClaimResult {
	hd := h.Claim.(*handle)
	if open == nil && hd.stale() {
		open = errBucketClosed
	}
	switch {
	case open == nil:
		return driver.ClaimResult{Status: driver.Granted, Attempt: hd.status.attempt}
	case errors.Is(open, errBucketClosed):
		there, err := hd.p.reopened(ctx, hd, hd.p.nearMark(hd.at.bucket))
		if err == nil && there {
			return driver.ClaimResult{Status: driver.Granted, Attempt: hd.status.attempt}
		}
		// Another may have taken over meanwhile: the status that it has written is the one
		// that says how the job has ended, and stays.
		if err == nil && w.takeBack(ctx, hd) == nil {
			return w.gone(ctx, h)
		}
	}
	return driver.ClaimResult{Status: driver.RetryLater, After: 50 * time.Millisecond}
}

// reopened reports whether a job waits in a bucket that is, or may be, closed: its own
// message is there. It came there after the closing, as only the first try of an insert
// can, on a stream of several replicas, or the bucket is not closed. If another try had stored
// the job before the closing, it does not wait in the late one. A message that was removed once does not
// wait, either, though it is there again. The leader is asked:
// another server may be a moment behind, and still have a message of before the closing,
// or not have the late one yet. Without an answer nobody knows: a job that is taken for
// gone would be lost.
//
// A leader that was deposed and does not know may have what is gone, or not have what is
// there. So it is asked before and after whether it knows of the claim.
func (p *part) reopened(ctx context.Context, hd *handle, mark string) (bool, error) {
	claim := witness{p.fateSubject(hd.at), hd.status.seq}
	if err := p.knows(ctx, claim); err != nil {
		return false, err
	}
	m, err := p.ofLeader(ctx, map[string]any{"seq": hd.seq})
	if err != nil {
		return false, err
	}
	late, err := p.isLateCopy(ctx, hd, mark)
	if err != nil {
		return false, err
	}
	removed, err := p.wasRemoved(ctx, hd.seq, mark)
	if err != nil {
		return false, err
	}
	return m.Seq > 0 && !late && !removed, p.knows(ctx, claim)
}

// gone forgets a job that has ended. If it was canceled nobody has told its key, or taken
// its forward away.
func (w *worker) gone(ctx context.Context, h *driver.Delivery) driver.ClaimResult {
	hd := h.Claim.(*handle)
	if err := hd.p.tidy(ctx, &h.Record, hd.at); err != nil {
		return driver.ClaimResult{Status: driver.RetryLater, After: time.Second}
	}
	hd.ack()
	return driver.ClaimResult{Status: driver.Gone}
}

// tidy removes the key and the forward of a job that was canceled.
func (ks *keys) tidy(ctx context.Context, r *driver.Record, at location) error {
	if r.Key == "" && at.version == 0 {
		return nil
	}
	s, err := ks.status(ctx, at)
	if err != nil || s.fate != canceled {
		return err
	}
	g, err := ks.leaveCanceled(ctx, r)
	if err != nil {
		return err
	}
	if at.version > 0 {
		g = append(g, grave(ks.forward(at.id)))
	}
	if len(g) == 0 {
		return nil
	}
	if err := ks.write(ctx, g...); !errors.Is(err, errConflict) {
		return err
	}
	return nil // another one has taken the key
}

func (h *handle) ack() { h.answer("+ACK") }

// nak has the consumer hand the job out again, after a while.
func (h *handle) nak(after time.Duration) {
	if after > 0 {
		h.answer(fmt.Sprintf(`-NAK {"delay": %d}`, after.Nanoseconds()))
		return
	}
	h.answer("-NAK")
}

// answer tells the consumer, without waiting: if it is lost the job is handed out again. In a stream that
// went back since, the sequence may be another job's.
func (h *handle) answer(s string) {
	if h.acks != "" && h.backs == h.p.history.now().backs {
		h.p.nc.post(h.acks, []byte(s))
	}
}

func (w *worker) Finish(ctx context.Context, outs []driver.Completion) []error {
	errs := make([]error, len(outs))
	spread(w.e, len(outs), func(i int) *part { return outs[i].Delivery.Claim.(*handle).p }, func(p *part, indices []int) {
		for k, err := range w.finishKeyed(ctx, p, pick(outs, indices)) {
			errs[indices[k]] = err
		}
	})
	return errs
}

// finishKeyed is finish. An end of a job that has left its key may meet a newer job of the key, which is stored
// or begins: then it is made once more.
func (w *worker) finishKeyed(ctx context.Context, p *part, outs []driver.Completion) []error {
	errs := w.finish(ctx, p, outs)
	for range claimTries {
		var again []int
		for i, err := range errs {
			if outs[i].Delivery.Record.FreeWhenBegun && errors.Is(err, errConflict) {
				again = append(again, i)
			}
		}
		if len(again) == 0 {
			break
		}
		for k, err := range w.finish(ctx, p, pick(outs, again)) {
			errs[again[k]] = err
		}
	}
	return errs
}

// finish writes ends down. Each replaces the status of the claim, so that it can be
// written only as long as nobody has taken over. An end whose answer was lost is recognized
// by its token, in a later call, too.
func (w *worker) finish(ctx context.Context, p *part, outs []driver.Completion) []error {
	token := rand.Text()
	for _, o := range outs {
		hd := o.Delivery.Claim.(*handle)
		hd.ending = cmp.Or(hd.ending, token)
	}
	refreshed := p.refresh(ctx, outs)
	all, errs := w.endAll(ctx, p, outs)
	for i, err := range refreshed {
		errs[i] = cmp.Or(err, errs[i])
	}
	var groups []group
	var of []int
	for i, err := range errs {
		if err == nil {
			groups, of = append(groups, statusLast(all[i])), append(of, i)
		} else if errors.Is(err, driver.ErrLeaseLost) {
			w.claims[p.number].end(outs[i].Delivery.Claim.(*handle).number)
		}
	}
	results := p.commitEnds(ctx, groups, func(k int) *handle { return outs[of[k]].Delivery.Claim.(*handle) })
	w.notifyFreed(p, groups, results, func(k int) string { return outs[of[k]].Delivery.Record.Lane })
	for k, res := range results {
		i, err := of[k], res.err
		if err != nil {
			err = w.checkEnd(ctx, p, outs[i].Delivery.Claim.(*handle), err)
		}
		hd := outs[i].Delivery.Claim.(*handle)
		if errs[i] = err; err == nil {
			hd.ack()
		}
		if err == nil || errors.Is(err, driver.ErrLeaseLost) {
			w.claims[p.number].end(hd.number)
		}
	}
	return errs
}

// maxReads is how many jobs at once read what they depend on.
const maxReads = 64

// endAll is end of each. That of a job with a key reads, and that of an occurrence twice:
// one after the other a thousand of them would take as long as a thousand questions.
func (w *worker) endAll(ctx context.Context, p *part, outs []driver.Completion) ([]group, []error) {
	all, errs := make([]group, len(outs)), make([]error, len(outs))
	var reading []int
	for i := range outs {
		if outs[i].Delivery.Record.Key != "" {
			reading = append(reading, i)
			continue
		}
		all[i], errs[i] = w.end(ctx, p, &outs[i])
	}
	inParallel(reading, func(i int) { all[i], errs[i] = w.end(ctx, p, &outs[i]) })
	return all, errs
}

// inParallel calls f for each element, maxReads at a time.
func inParallel[T any](all []T, f func(T)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxReads)
	for _, v := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(v)
		})
	}
	wg.Wait()
}

// end returns all that is written with an end.
func (w *worker) end(ctx context.Context, p *part, o *driver.Completion) (group, error) {
	hd := o.Delivery.Claim.(*handle)
	r := o.Delivery.Record
	r.Attempt, r.Crashes, r.LastError, r.Errors = min(hd.status.attempt, r.MaxAttempts), 0, o.Error, o.Errors
	if o.Uncounted {
		r.Attempt = hd.status.attempt - 1
	}
	var key group
	superseded := false
	if o.End == driver.Retry {
		r.Retried(o.At)
		if r.FreeWhenBegun {
			var err error
			if key, superseded, err = p.retakeKey(ctx, &r); err != nil {
				return nil, err
			}
		}
		if !superseded {
			return append(p.records.moveGroup(&r, hd.data, hd.at, hd.status, hd.ending, o.At, p.now()), key...), nil
		}
	}
	end := status{fate: done, token: hd.ending, attempt: hd.status.attempt}
	if o.End == driver.DeadLetter {
		end.fate = dead
	}
	g := group{{subject: p.fateSubject(hd.at), data: end.encode(), last: seq(hd.status.seq), rollup: p.admission.pressed()}}
	if o.End == driver.DeadLetter {
		g = append(g, write{subject: p.deadSubject(r.ID), data: p.records.encodeFitting(&r, hd.data), rollup: true, ttl: w.c.Retention})
	}
	if hd.at.version > 0 {
		g = append(g, grave(p.forward(r.ID)))
	}
	if !superseded {
		var err error
		if key, err = p.leaveKey(ctx, &r, o.Next); err != nil {
			return nil, err
		}
	}
	schedule, err := p.schedules.endSchedule(ctx, o)
	if err != nil {
		return nil, err
	}
	g = append(append(append(g, p.leave(hd.status)...), key...), schedule...)
	if o.Next == nil || len(key) == 0 {
		return g, nil
	}
	if bucket := p.openFor(o.Next.Due); bucket != p.nearOf(o.Next.Due) {
		return append(g, p.records.elsewhere(o.Next, bucket, true)...), nil
	}
	return append(g, p.records.recordWrite(o.Next, nil, p.nearOf(o.Next.Due), p.now(), true)), nil
}

// checkEnd finds out what an error of an end means.
func (w *worker) checkEnd(ctx context.Context, p *part, hd *handle, err error) error {
	s, readErr := p.status(ctx, hd.at)
	switch {
	case readErr != nil:
		return err
	case s.token == hd.ending:
		return nil // the answer was lost
	case s.fate == claimed && s.token == hd.status.token:
		hd.status.seq = s.seq
		if errors.Is(err, errConflict) { // about the key, or a bucket that is closed
			return cmp.Or(p.readWatermark(ctx), err)
		}
		return err
	default:
		return driver.ErrLeaseLost
	}
}

// Release gives back. A claim is replaced by a status that anyone may replace.
func (w *worker) Release(ctx context.Context, held []*driver.Delivery, after time.Duration) error {
	errs := make([]error, len(w.e.parts))
	spread(w.e, len(held), func(i int) *part { return held[i].Claim.(*handle).p }, func(p *part, indices []int) {
		all := make([]*handle, len(indices))
		for k, h := range pick(held, indices) {
			all[k] = h.Claim.(*handle)
		}
		if errs[p.number] = w.freeAll(ctx, p, all); errs[p.number] == nil {
			for _, hd := range all {
				w.claims[p.number].end(hd.number)
			}
		}
		for _, hd := range all {
			hd.nak(after)
		}
		if after > 0 {
			w.keepDeferred(all, after)
		}
	})
	return errors.Join(errs...)
}

// freeAll gives back those that are claimed. It looks for a claim that is not known to be
// written: most were refused, and the permits that they name are others'.
func (w *worker) freeAll(ctx context.Context, p *part, handles []*handle) error {
	var known, unknown []*handle
	for _, hd := range handles {
		switch {
		case hd.status.fate != claimed:
		case hd.status.seq == 0, hd.of != p.history.now().backs:
			unknown = append(unknown, hd)
		default:
			known = append(known, hd)
		}
	}
	var errs []error
	for k, res := range w.free(ctx, p, known) {
		if errors.Is(res.err, errConflict) {
			unknown = append(unknown, known[k])
			continue
		}
		errs = append(errs, res.err)
	}
	var mu sync.Mutex
	inParallel(unknown, func(hd *handle) {
		err := w.freeOwn(ctx, hd)
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	})
	return errors.Join(errs...)
}

// freeOwn gives back a claim whose sequence is not known, if it was written and the answer was
// lost. Claims of others are not touched, and of the same worker those of another handle.
func (w *worker) freeOwn(ctx context.Context, hd *handle) error {
	return hd.p.change(ctx, "a claim", func(error) (bool, error) {
		s, err := hd.p.status(ctx, hd.at)
		if call, _, _ := strings.Cut(s.token, "."); err != nil || s.fate != claimed || s.worker != w.c.Name || s.token != hd.token(call) {
			return true, err // or another one has taken it over, or has it freed, in between
		}
		hd.status = s
		res := w.free(ctx, hd.p, []*handle{hd})[0]
		return res.err == nil, res.err
	})
}

// deliveryOf makes a Delivery of a message of a near bucket.
func (p *part) deliveryOf(m *nats.Msg) (*driver.Delivery, error) {
	r, err := decode(m.Data)
	if err != nil {
		return nil, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return nil, err
	}
	d := &driver.Delivery{Ref: p.refOf(&r), Record: r}
	d.Claim = &handle{
		p: p, at: p.locationOf(m.Subject, &r), acks: m.Reply, since: time.Now(), steps: p.clock.Step().Count,
		again: meta.NumDelivered > 1, seq: meta.Sequence.Stream, backs: p.history.now().backs, record: &d.Record, data: m.Data,
	}
	return d, nil
}
