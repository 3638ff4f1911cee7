package worker

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// mostPoll is for how long Fetch may find nothing out, beyond a lease.
const mostPoll = 15 * time.Second

// Health returns an error if the lease is lost, no poll has succeeded for long, or the store went back and
// does not agree with the worker yet.
func (w *Worker) Health(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	looked := w.polls.lastEnd(now, w.blocked > 0)
	switch age := now.Sub(looked); {
	case w.silent || w.lease.at(now) == over:
		return fmt.Errorf("%w: no heartbeat was answered for %v", driver.ErrLeaseLost, now.Sub(w.lease.renewed).Round(time.Millisecond))
	case age > w.c.Lease+mostPoll:
		return fmt.Errorf("durable: last successful poll %v ago", age.Round(time.Millisecond))
	case !w.apart.since.IsZero():
		return fmt.Errorf("%w: noticed %v ago; this worker's claims are being compared", driver.ErrWentBack, now.Sub(w.apart.since).Round(time.Millisecond))
	}
	return nil
}

// polls are the polls of Fetch: it says when one has ended, and what is wrong with the store. Its lock is held for
// nothing else.
type polls struct {
	mu      sync.Mutex // guards all below
	last    time.Time  // when the last one ended
	trouble Rarely     // for the log

	revision int64     // of the limits and pauses that were read last
	seen     time.Time // when a poll has last found that revision, if it did
}

// read notes which limits and pauses were read.
func (p *polls) read(revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.revision = revision
}

// saw notes the revision that a poll has found, and reports whether the limits and pauses must be read again.
func (p *polls) saw(revision int64, at time.Time) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if revision != p.revision {
		p.seen = time.Time{}
		return true
	}
	p.seen = at
	return false
}

// flowIsFresh returns for how long the limits and pauses need not be read, since a poll has found lately that they are
// those that were read.
func (p *polls) flowIsFresh(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.Add(2 * driver.RetryInterval).Sub(now)
}

func (p *polls) ended(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = at
}

func (p *polls) troubled(log *slog.Logger, err error) {
	p.mu.Lock()
	say := p.trouble.Now()
	p.mu.Unlock()
	if say {
		log.Error("durable: a fault of the store may keep jobs from running, or lose them", "error", err)
	}
}

// lastEnd is when the last poll has ended, or now if Fetch waits here, since the worker is full.
func (p *polls) lastEnd(now time.Time, full bool) time.Time {
	if full {
		return now
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}
