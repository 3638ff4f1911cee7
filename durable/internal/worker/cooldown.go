package worker

import (
	"context"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// cooldownStep is what the end of a cooldown is rounded up to: handlers that return together store one.
const cooldownStep = 100 * time.Millisecond

// coolDown stores the cooldown that a handler has asked for, before the end of its job is stored and its slot is
// free. So the next job of the kind does not begin in this process, and after a crash the cooldown holds.
// One at a time: most of those that wait here find that the cooldown of another is as long.
func (w *Worker) coolDown(out *driver.Completion, d time.Duration) {
	r := &out.Delivery.Record
	what, now := driver.Pausable{Kind: r.Kind, Lane: r.Lane}, w.c.Clock.Time()
	until := now.Add(d + cooldownStep - 1).Truncate(cooldownStep)
	ctx, cancel := context.WithTimeout(w.link.requests, w.c.patience())
	defer cancel()
	select {
	case w.cooling <- struct{}{}:
		defer func() { <-w.cooling }()
	case <-ctx.Done():
	}
	if !w.isPausedUntil(what, until) {
		err := w.c.PauseUntil(ctx, what, until)
		if err != nil {
			w.c.Log.Warn("durable: cannot store a cooldown; only its job waits", "of", what.String(), "for", d, "error", err)
			return
		}
		w.c.Log.Warn("durable: a handler has asked for a cooldown", "of", what.String(), "until", until, "error", out.Error)
		if f, err := w.c.Engine.FlowControl(ctx); err == nil {
			w.setFlowControl(f)
		}
	}
	out.At = now
}

// isPausedUntil reports whether it is known here that something is paused until a time.
func (w *Worker) isPausedUntil(what driver.Pausable, until time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.dispatcher.Pauses(), func(p driver.Pause) bool {
		return p.Pausable == what && (p.Until.IsZero() || !p.Until.Before(until))
	})
}
