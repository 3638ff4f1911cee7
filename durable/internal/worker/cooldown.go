package worker

import (
	"context"
	"errors"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
	"github.com/tickwheel/tickwheel/durable/internal/worker/attempt"
)

// cooldownStep is what the end of a cooldown is rounded up to: handlers that return together store one.
const cooldownStep = 100 * time.Millisecond

// cooldown is one that a handler has asked for.
type cooldown struct {
	driver.Pause
	reason string
	stored chan error // has an error, or is closed once the store has the pause, or one of the same jobs that ends later
}

// coolDown stores the cooldown that a handler has asked for, before the end of its job is stored and its slot is
// free. So the next job of the kind does not begin in this process, and after a crash the cooldown holds.
//
// The store alone knows whether a pause is there that ends later: another process may have resumed the one that is
// known here. So each cooldown is part of a request that began after its handler had returned, and those that come
// while a request is under way share the next.
func (w *Worker) coolDown(out *driver.Completion, d time.Duration) {
	r := &out.Delivery.Record
	now := clock.WholeMicros(w.c.Clock.Time())
	c := &cooldown{driver.Pause{Pausable: driver.Pausable{Kind: r.Kind, Lane: r.Lane}, Since: now}, out.Error, make(chan error, 1)}
	c.Until = now.Add(d + cooldownStep - 1).Truncate(cooldownStep)
	ctx, cancel := context.WithTimeout(w.link.requests, w.c.patience())
	defer cancel()
	count := func(n int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cooling += n
		w.changed.Broadcast()
	}
	count(1)
	defer count(-1)
	err := driver.ErrClosed
	if w.cooldowns.Put(c) {
		select {
		case err = <-c.stored:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		w.c.Log.Warn("durable: cannot store a cooldown; only its job waits", "of", c.String(), "for", d, "error", err)
		return
	}
	out.At = now
}

// cooldownOf returns the cooldown that an error asks for, if it does. The methods of the error are the user's, and may end
// their goroutine: then it asks for none.
func cooldownOf(err error) (after time.Duration, reason string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		after, reason = attempt.Cools(err)
	}()
	<-done
	return after, reason
}

// storeCooldowns stores cooldowns by one request, that of each Pausable with the latest end.
func (w *Worker) storeCooldowns(asked []*cooldown) {
	ctx, cancel := context.WithTimeout(w.link.requests, w.c.patience())
	defer cancel()
	w.c.pauseFor(ctx, asked)
	if f, err := w.c.Engine.FlowControl(ctx); err == nil {
		w.setFlowControl(f)
	}
	for _, c := range asked {
		close(c.stored)
	}
}

// pauseFor stores cooldowns, of each Pausable the one that ends last, and answers those that it cannot store.
func (c *Config) pauseFor(ctx context.Context, asked []*cooldown) {
	last := map[driver.Pausable]*cooldown{}
	for _, one := range asked {
		if l := last[one.Pausable]; l == nil || one.Until.After(l.Until) {
			last[one.Pausable] = one
		}
	}
	pauses := make([]driver.Pause, 0, len(last))
	for _, one := range last {
		pauses = append(pauses, one.Pause)
	}
	stored, err := c.PauseUntil(ctx, pauses)
	for _, p := range stored {
		c.Log.Warn("durable: a handler has asked for a cooldown", "of", p.String(), "until", p.Until, "error", last[p.Pausable].reason)
	}
	for _, one := range asked {
		switch {
		case err == nil:
		case errors.Is(err, driver.ErrInvalid) && len(last) > 1: // there are too many pauses: some may fit
			c.pauseFor(ctx, []*cooldown{one})
		default:
			one.stored <- err
		}
	}
}
