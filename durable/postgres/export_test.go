package postgres

import (
	"context"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// SetPoll changes how often the engine's Feeds look if nobody rings, before they do.
func (e *Engine) SetPoll(d time.Duration) { e.poll = d }

// Sweep makes one pass of what workers do all the time.
func (e *Engine) Sweep(ctx context.Context) { e.sweepPass(ctx, e.sweep) }

// Expire makes one pass of what workers do now and then.
func (e *Engine) Expire(ctx context.Context) { e.sweepPass(ctx, e.expire) }

// Look makes one look of a worker's Fetch, at all that is due.
func Look(ctx context.Context, w driver.Worker) ([]*driver.Delivery, error) {
	f := newFeed(w.(*worker))
	f.ear = &ear{} // nobody rings
	return f.look(ctx, func([]*driver.Delivery) {})
}

// LoseClaim does what a claim does that is neither written nor answered.
func LoseClaim(w driver.Worker, h *driver.Delivery) { w.(*worker).unanswered(handleOf(h)) }

// WorkerID is what a worker is called in the table.
func WorkerID(w driver.Worker) int64 { return w.(*worker).id }

// EndHung does what workers do all the time.
func (e *Engine) EndHung(ctx context.Context, after time.Duration) { e.endHung(ctx, after) }

// News is what an announcement says.
func News(old bool, kinds ...string) string {
	if len(kinds) == 0 {
		return news{old: old}.encode()
	}
	return newsOf(kinds, old).encode()
}

// Announces reports whether an announcement is one of a kind.
func Announces(text, kind string) bool {
	n := decodeNews(text)
	return n.kinds == nil || n.kinds[kind]
}
