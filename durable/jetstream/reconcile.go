package jetstream

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// A worker knows its claims, and so does the stream. The two agree until the stream goes back
// (history.go): then it has claims again that the worker has ended, and lacks others that the worker
// has made since. Nobody takes over a claim whose worker lives, so its permits would not be free, and
// its job would not run. A heartbeat says that the worker lives, not that it knows.
//
// So a worker compares the two once the stream went back, until they agree. It reads all statuses:
// 100,000 take some three seconds. It frees each claim that is its own there and unknown here, as
// another worker would if it had died. A claim that is known here, and is not there, is lost. The
// known ones are in claims, and do not come from the Queue (WorkConfig.Holds): a status does not
// say the Ref of its job.

// claims are those that a worker has made in a partition and not ended, also those that are on their
// way to the stream or are being given back. They are known by the numbers of their handles, which
// the tokens of their statuses have. Mu guards all, since claims, ends and comparisons overlap.
//
// A claim that is forgotten too early is the expensive mistake: a comparison would free it while its
// handler runs, and the job would run twice. So a claim is noted before it is written, and
// forgotten after its end is stored. To keep one too long costs a read in a comparison.
type claims struct {
	mu  sync.Mutex
	all map[uint64]ownClaim
}

// ownClaim is what a comparison has to know of a claim: where its status is, which one it is, and the
// Ref by which a handler that lost it is found. The handle itself is not here: calls of the Worker
// change it, without a lock.
type ownClaim struct {
	at  location
	seq uint64 // of the status; 0 until the claim is known to be written
	ref driver.Ref
}

// reconciler has the claims of a worker, and compares them with those in the streams. A claim is
// known here before it is written, and until its end is. Each partition has its own locks; all else
// is fixed.
//
// While no stream goes back it costs a map entry for each claim, and a comparison of two numbers
// with each heartbeat and poll. It never ends a claim of another worker, nor one that it knows.
type reconciler struct {
	*heart
	notices     *notices
	claims      []claims // of each partition, as reconciling
	reconciling []reconciling
	comparing   sync.WaitGroup
	apart       atomic.Int64    // partitions that are being compared
	open        context.Context // ends with Close
	shut        context.CancelFunc
}

// newReconciler returns that of a worker that has claimed nothing, of streams as they are now: that
// they went back before concerns no claim of it.
func newReconciler(ht *heart, parts []*part, nt *notices) *reconciler {
	rc := &reconciler{heart: ht, notices: nt, claims: make([]claims, len(parts)), reconciling: make([]reconciling, len(parts))}
	rc.open, rc.shut = context.WithCancel(context.Background())
	for i, p := range parts {
		rc.claims[i].all = map[uint64]ownClaim{}
		rc.reconciling[i].backs = p.Backs()
		rc.backs[i] = rc.reconciling[i].backs
	}
	return rc
}

// begin notes claims before they are written, when their stream had gone back so often. A claim
// that is made anew by the same handle, after it was refused, is the same entry.
func (c *claims) begin(backs int64, n int, of func(i int) *driver.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range n {
		d := of(i)
		hd := d.Claim.(*handle)
		hd.of = backs
		c.all[hd.number] = ownClaim{at: hd.at, ref: d.Ref}
	}
}

// answered notes what became of claims. One that may have been written is kept: its job is claimed
// again, or given back. A refused one is not: its status is another's, or that of another handle.
func (c *claims) answered(held []*driver.Delivery, results []driver.ClaimResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, d := range held {
		hd := d.Claim.(*handle)
		written := hd.status.fate == claimed && hd.status.seq > 0
		if results[i].Status == driver.Granted {
			c.all[hd.number] = ownClaim{hd.at, hd.status.seq, d.Ref}
		} else if results[i].Status == driver.Gone || !hd.unsure && !written {
			delete(c.all, hd.number)
		}
	}
}

// end forgets a claim that has ended, was given back, or is lost. It reports whether it was known:
// a comparison does not report as lost what has just ended.
func (c *claims) end(number uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.all[number]
	delete(c.all, number)
	return ok
}

// snapshot is of before the stream is read: a claim that is written after that is no lost one.
func (c *claims) snapshot() map[uint64]ownClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.all)
}

// knows reports whether a status of a claim of this worker is that of one that is known here. The
// sequence counts, too: a stream that went back may have an earlier claim of the same handle.
func (c *claims) knows(s status) bool {
	_, number, _ := strings.Cut(s.token, ".")
	n, err := strconv.ParseUint(number, 36, 64)
	c.mu.Lock()
	defer c.mu.Unlock()
	own, ok := c.all[n]
	return err == nil && ok && (own.seq == 0 || own.seq == s.seq)
}

// reconciling is how far a worker has compared its claims in a partition. Mu guards all of it; while
// busy is set, one goroutine compares, and it alone sets backs. It does so before it reads the claims:
// if the stream goes back while they are read, they are read once more.
type reconciling struct {
	mu    sync.Mutex
	backs int64 // of the history, up to which the claims agree
	busy  bool
	again bool // a claim has shown that they do not agree
}

// reconcile begins to compare if the stream went back since. It does not wait for the end of that:
// heartbeats and polls, which call it, go on meanwhile, and jobs are claimed and run. A call while
// one is under way is left out, as that one reads the history again until nothing differs.
func (rc *reconciler) reconcile(p *part) {
	r := &rc.reconciling[p.number]
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy || r.backs == p.Backs() && !r.again || rc.open.Err() != nil {
		return
	}
	r.busy = true
	rc.apart.Add(1)
	rc.comparing.Go(func() {
		ctx, cancel := context.WithCancel(rc.open)
		defer cancel()
		defer context.AfterFunc(p.Conn.Ended, cancel)()
		rc.agree(ctx, p, r)
		if rc.apart.Add(-1) == 0 && ctx.Err() == nil {
			rc.report(driver.Notice{Agreed: true})
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.busy = false
	})
}

// compareNoMore ends what compares, and waits for its end. From then on no claim is freed by this
// worker, though the comparison is not done: its heartbeat ends next, so others free what it has
// left.
func (rc *reconciler) compareNoMore() {
	rc.shut()
	for i := range rc.reconciling {
		rc.reconciling[i].mu.Lock() // a goroutine that has found it open has begun by then
		rc.reconciling[i].busy = true
		rc.reconciling[i].mu.Unlock()
	}
	rc.comparing.Wait()
}

// agree compares until nothing differs. It does so twice at least: another worker may have taken a
// claim over meanwhile, by the heartbeat that was in the stream. The first time it reads all
// statuses. The second time, on one replica, it reads those of its own claims, as nobody adds
// claims of this worker but itself. An error is no reason to end: the permits of forgotten claims
// wait for this.
func (rc *reconciler) agree(ctx context.Context, p *part, r *reconciling) {
	for agreed, all := 0, true; agreed < 2 && ctx.Err() == nil; {
		backs, how := p.Past()
		r.mu.Lock()
		back := r.backs != backs
		if back || r.again {
			agreed, all = 0, true
		}
		r.backs, r.again = backs, false
		r.mu.Unlock()
		if back {
			rc.report(driver.Notice{WentBack: how})
		}
		same, err := rc.compare(ctx, p, all)
		if agreed++; err != nil || !same {
			agreed = 0
		}
		all = err != nil || p.Replicas() > 1 // another server may have been behind
		if agreed < 2 {
			p.Wait(ctx, rc.soon())
		}
	}
}

// compare frees the claims of this worker that are in the stream and not known here, and reports those
// that are known here and not there: of all in the stream, or of those that are known here. First it
// writes a heartbeat: the one that was there may be old. Lost claims that were found before an error
// are reported all the same: they are known no more, so the next comparison does not find them.
func (rc *reconciler) compare(ctx context.Context, p *part, all bool) (same bool, err error) {
	if _, err := rc.writeHeartbeat(ctx, p.buckets); err != nil {
		return false, err
	}
	own := &rc.claims[p.number]
	before := own.snapshot()
	stored, err := rc.storedClaims(ctx, p, before, all)
	if err != nil {
		return false, err
	}
	var lost []driver.Ref
	for n, c := range before {
		if c.seq == 0 || stored[c.at].seq == c.seq {
			continue
		}
		var s status
		if s, err = p.status(ctx, c.at); err != nil { // it may have been made after it was looked for
			break
		}
		if (s.seq != c.seq || s.worker != rc.c.Name) && own.end(n) {
			lost = append(lost, c.ref)
		}
	}
	if len(lost) > 0 {
		rc.report(driver.Notice{Lost: lost})
	}
	if err != nil {
		return false, err
	}
	// The known claims are read after the stream: a claim is known before it is written.
	maps.DeleteFunc(stored, func(_ location, s status) bool { return own.knows(s) })
	return len(lost) == 0 && len(stored) == 0, rc.freeForgotten(ctx, p, stored)
}

// freeForgotten frees claims of this worker that it does not know, as another worker would if it
// had died: their jobs become suspects, since a handler may have begun. A conflict is no error:
// somebody else has changed that status since, and the next comparison reads it again.
func (rc *reconciler) freeForgotten(ctx context.Context, p *part, all map[location]status) (err error) {
	var groups []stream.Group
	var permits [][]string
	for at, s := range all {
		groups, permits = append(groups, p.freeGroup(at, s, true)), append(permits, s.permits)
	}
	lanes, err := p.quotas.lanesOf(ctx, permits)
	if err != nil {
		return err
	}
	results, n := p.Commit(ctx, groups), 0
	rc.notices.freed(p.quotas, groups, results, func(i int) string { return lanes[i] })
	for _, res := range results {
		if res.Err == nil {
			n++
		} else if !errors.Is(res.Err, stream.ErrConflict) {
			err = cmp.Or(err, res.Err)
		}
	}
	if n > 0 {
		rc.report(driver.Notice{Forgotten: n})
	}
	return err
}

// disown frees a claim that a job was found to have, and that is of this worker and unknown. Where one
// is, there may be others whose jobs nobody asks for, so it also begins a comparison.
func (rc *reconciler) disown(ctx context.Context, p *part, at location, s status) error {
	r := &rc.reconciling[p.number]
	r.mu.Lock()
	r.again = true
	r.mu.Unlock()
	rc.reconcile(p)
	return rc.freeForgotten(ctx, p, map[location]status{at: s})
}

// storedClaims returns the statuses of this worker's claims in the stream: of all, or of the jobs
// whose claims are known here. For all it reads each status that there is, in the stream's order,
// so that of those of one version the last one counts; no subject names the worker, since a status
// must have the same subject whoever writes it.
func (rc *reconciler) storedClaims(ctx context.Context, p *part, known map[uint64]ownClaim, all bool) (map[location]status, error) {
	stored := map[location]status{}
	note := func(m stream.Message) {
		at, ok := p.parseFate(m.Subject)
		delete(stored, at)
		if s, err := decodeStatus(m.Data, m.Seq); err == nil && ok && s.fate == claimed && s.worker == rc.c.Name {
			stored[at] = s
		}
	}
	if !all {
		var subjects []string
		for _, c := range known {
			subjects = append(subjects, p.statusSubject(c.at))
		}
		found, err := p.Lasts(ctx, subjects)
		for _, m := range found {
			note(m)
		}
		return stored, err
	}
	for page, err := range p.Pages(ctx, p.subject("c.>"), 1, time.Time{}) {
		if err != nil {
			return nil, err
		}
		for _, m := range page {
			note(m)
		}
	}
	return stored, nil
}
