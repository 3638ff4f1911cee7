package jetstream

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A worker knows its claims, and so does the stream. The two agree until the stream goes back
// (back.go): then it has claims again that the worker has ended, and lacks others that the worker
// has made since. Nobody takes over a claim whose worker lives, so its permits would not be free, and
// its job would not run. A heartbeat says that the worker lives, not that it knows.
//
// So a worker compares the two once the stream went back, until they agree. It reads all statuses:
// 100,000 take some three seconds. It frees each claim that is its own there and unknown here, as another
// worker would if it had died. A claim that is known here, and is not there, is lost. What is known
// is in claims, and not asked of the Queue (WorkConfig.Holds): a status does not say the Ref of its job.

// claims are those that a worker has made in a partition and not ended, also those that are on their
// way to the stream or are being given back. They are known by the numbers of their handles, which
// the tokens of their statuses have.
type claims struct {
	mu  sync.Mutex
	all map[uint64]ownClaim
}

type ownClaim struct {
	at  location
	seq uint64 // of the status; 0 until the claim is known to be written
	ref driver.Ref
}

// expectNothing makes the worker one that has claimed nothing, of streams as they are now.
func (w *worker) expectNothing() {
	w.open, w.shut = context.WithCancel(context.Background())
	w.claims, w.reconciling = make([]claims, len(w.e.parts)), make([]reconciling, len(w.e.parts))
	for i, p := range w.e.parts {
		w.claims[i].all = map[uint64]ownClaim{}
		w.reconciling[i].backs = p.history.now().backs
		w.backs[i] = w.reconciling[i].backs
	}
}

// begin notes claims before they are written.
func (c *claims) begin(p *part, jobs []*claimRequest) {
	backs := p.history.now().backs
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range jobs {
		j.hd.of = backs
		c.all[j.hd.number] = ownClaim{at: j.hd.at, ref: j.h.Ref}
	}
}

// answered notes what became of claims. One that may have been written is kept: its job is claimed
// again, or given back.
func (c *claims) answered(held []*driver.Delivery, results []driver.ClaimResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, d := range held {
		hd := d.Claim.(*handle)
		written := hd.status.fate == claimed && hd.status.seq > 0
		switch granted := results[i].Status == driver.Granted; {
		case granted:
			c.all[hd.number] = ownClaim{hd.at, hd.status.seq, d.Ref}
		case results[i].Status == driver.Gone || !hd.unsure && !written:
			delete(c.all, hd.number)
		}
	}
}

// end forgets a claim that has ended, was given back, or is lost. It reports whether it was known.
func (c *claims) end(number uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.all[number]
	delete(c.all, number)
	return ok
}

func (c *claims) snapshot() map[uint64]ownClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.all)
}

// knows reports whether a status of a claim of this worker is that of one that is known here.
func (c *claims) knows(s status) bool {
	_, number, _ := strings.Cut(s.token, ".")
	n, err := strconv.ParseUint(number, 36, 64)
	c.mu.Lock()
	defer c.mu.Unlock()
	own, ok := c.all[n]
	return err == nil && ok && (own.seq == 0 || own.seq == s.seq)
}

// reconciling is how far a worker has compared its claims in a partition.
type reconciling struct {
	mu    sync.Mutex
	backs int64 // of the history, up to which the claims agree
	busy  bool
	again bool // a claim has shown that they do not agree
}

// reconcile begins to compare if the stream went back since. It does not wait for the end of that.
func (w *worker) reconcile(p *part) {
	r := &w.reconciling[p.number]
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy || r.backs == p.history.now().backs && !r.again || w.open.Err() != nil {
		return
	}
	r.busy = true
	w.apart.Add(1)
	w.comparing.Go(func() {
		ctx, cancel := context.WithCancel(w.open)
		defer cancel()
		defer context.AfterFunc(p.closed, cancel)()
		w.agree(ctx, p, r)
		if w.apart.Add(-1) == 0 && ctx.Err() == nil {
			w.report(driver.Notice{Agreed: true})
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.busy = false
	})
}

// compareNoMore ends what compares, and waits for its end.
func (w *worker) compareNoMore() {
	w.shut()
	for i := range w.reconciling {
		w.reconciling[i].mu.Lock() // a goroutine that has found it open has begun by then
		w.reconciling[i].busy = true
		w.reconciling[i].mu.Unlock()
	}
	w.comparing.Wait()
}

// agree compares until nothing differs. It does so twice at least: another worker may have taken a claim over
// meanwhile, by the heartbeat that was in the stream.
func (w *worker) agree(ctx context.Context, p *part, r *reconciling) {
	for agreed, all := 0, true; agreed < 2; {
		backs, how := p.history.state()
		r.mu.Lock()
		back := r.backs != backs
		if back || r.again {
			agreed, all = 0, true
		}
		r.backs, r.again = backs, false
		r.mu.Unlock()
		if back {
			w.report(driver.Notice{WentBack: how})
		}
		same, err := w.compare(ctx, p, all)
		if agreed++; err != nil || !same {
			agreed = 0
		}
		all = err != nil || p.replicas > 1 // another server may have been behind
		if agreed < 2 {
			p.wait(ctx, w.soon())
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// compare frees the claims of this worker that are in the stream and not known here, and reports those
// that are known here and not there: of all in the stream, or of those that are known here. First it
// writes a heartbeat: the one that was there may be old.
func (w *worker) compare(ctx context.Context, p *part, all bool) (same bool, err error) {
	if _, err := w.writeHeartbeat(ctx, p); err != nil {
		return false, err
	}
	own := &w.claims[p.number]
	before := own.snapshot()
	var stored map[location]status
	if all {
		stored, err = w.storedClaims(ctx, p)
	} else {
		stored, err = w.storedOf(ctx, p, before)
	}
	if err != nil {
		return false, err
	}
	var lost []driver.Ref
	for n, c := range before {
		if c.seq == 0 || stored[c.at].seq == c.seq {
			continue
		}
		s, err := p.status(ctx, c.at) // it may have been made after it was looked for
		if err != nil {
			return false, err
		}
		if (s.seq != c.seq || s.worker != w.c.Name) && own.end(n) {
			lost = append(lost, c.ref)
		}
	}
	if len(lost) > 0 {
		w.report(driver.Notice{Lost: lost})
	}
	maps.DeleteFunc(stored, func(_ location, s status) bool { return own.knows(s) }) // asked after it was read: a claim is known before it is written
	err = w.freeForgotten(ctx, p, stored)
	return len(lost) == 0 && len(stored) == 0, err
}

// freeForgotten frees claims of this worker that it does not know, as another worker would if it had died.
func (w *worker) freeForgotten(ctx context.Context, p *part, all map[location]status) (err error) {
	var groups []group
	var permits [][]string
	for at, s := range all {
		groups, permits = append(groups, p.freeGroup(at, s, true)), append(permits, s.permits)
	}
	lanes, err := p.quotas.lanesOf(ctx, permits)
	if err != nil {
		return err
	}
	results, n := p.commit(ctx, groups), 0
	w.notifyFreed(p, groups, results, func(i int) string { return lanes[i] })
	for _, res := range results {
		if res.err == nil {
			n++
		} else if !errors.Is(res.err, errConflict) {
			err = cmp.Or(err, res.err)
		}
	}
	if n > 0 {
		w.report(driver.Notice{Forgotten: n})
	}
	return err
}

// disown frees a claim that a job was found to have, and that is of this worker and unknown.
func (w *worker) disown(ctx context.Context, p *part, at location, s status) error {
	r := &w.reconciling[p.number]
	r.mu.Lock()
	r.again = true
	r.mu.Unlock()
	w.reconcile(p)
	return w.freeForgotten(ctx, p, map[location]status{at: s})
}

// report tells the Queue.
func (w *worker) report(n driver.Notice) {
	if w.c.Notify != nil {
		w.c.Notify(n)
	}
}

// refresh reads the statuses of claims that were written before the stream went back, and returns ErrLeaseLost of those
// that it has no more: another message may have the sequence.
func (p *part) refresh(ctx context.Context, outs []driver.Completion) []error {
	errs, backs := make([]error, len(outs)), p.history.now().backs
	for i := range outs {
		hd := outs[i].Delivery.Claim.(*handle)
		if hd.of == backs {
			continue
		}
		s, err := p.status(ctx, hd.at)
		if err == nil && s.token != hd.status.token && s.token != hd.ending {
			err = driver.ErrLeaseLost
		}
		if errs[i] = err; err == nil {
			hd.status.seq, hd.of = s.seq, backs
		}
	}
	return errs
}

// storedOf returns those of storedClaims whose jobs have claims that are known here.
func (w *worker) storedOf(ctx context.Context, p *part, known map[uint64]ownClaim) (map[location]status, error) {
	var subjects []string
	for _, c := range known {
		subjects = append(subjects, p.fateSubject(c.at))
	}
	found, err := p.lasts(ctx, subjects)
	all := map[location]status{}
	for _, m := range found {
		w.noteStored(p, m, all)
	}
	return all, err
}

// noteStored notes what the message of a status says, if it is the last of its version.
func (w *worker) noteStored(p *part, m stored, all map[location]status) {
	at, ok := p.parseFate(m.Subject)
	s, err := decodeStatus(m.Data, m.Seq)
	if err == nil && ok && s.fate == claimed && s.worker == w.c.Name {
		all[at] = s
	} else {
		delete(all, at)
	}
}

// storedClaims returns the statuses of this worker's claims in the stream. It reads all statuses, in
// the stream's order, so that of those of one version the last one counts.
func (w *worker) storedClaims(ctx context.Context, p *part) (map[location]status, error) {
	all := map[location]status{}
	for page, err := range p.pages(ctx, p.subject("c.>"), 1, time.Time{}) {
		if err != nil {
			return nil, err
		}
		for _, m := range page {
			w.noteStored(p, m, all)
		}
	}
	return all, nil
}

// soon is the pause between two comparisons, and between two claims of a job that another worker has: that one may
// find that it does not know the claim, long before its lease is over.
func (w *worker) soon() time.Duration { return min(w.c.Lease/8, 3*time.Second) }
