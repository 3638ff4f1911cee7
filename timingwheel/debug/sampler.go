package debug

import (
	"context"
	"time"
)

// watcher is a client of the stream. Its channel has room for one event. A slow client
// finds the latest event there, and misses those before it. So a slow client delays
// nobody else and needs the memory of one event.
type watcher struct {
	name   string // of the wheel that it shows; empty for the first
	events chan []byte
}

// watch adds a watcher, and starts the sampler with the first one.
func (h *Handler) watch(name string) *watcher {
	w := &watcher{name: name, events: make(chan []byte, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[w] = true
	if h.rest == nil {
		var ctx context.Context
		ctx, h.rest = context.WithCancel(context.Background())
		go h.run(ctx)
	}
	return w
}

// leave removes a watcher, and ends the sampler with the last one.
func (h *Handler) leave(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers, w)
	if len(h.watchers) == 0 {
		h.rest()
		h.rest = nil
	}
}

// run is the sampler. A watcher gets its first event from serveEvents, so run begins with
// a pause. Turns that cost much have longer pauses.
func (h *Handler) run(ctx context.Context) {
	var turns costs
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(h.interval, turns.pause())):
		}
		turns.add(h.publish())
	}
}

// publish is one turn of the sampler: it leaves an event with each watcher. It returns
// what that cost, without the samples.
func (h *Handler) publish() time.Duration {
	r := newRound(h.list())
	for _, w := range h.everyone() {
		w.put(r.event(w.name))
	}
	return r.cost
}

func (h *Handler) everyone() []*watcher {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*watcher, 0, len(h.watchers))
	for w := range h.watchers {
		all = append(all, w)
	}
	return all
}

// put replaces the event that waits for a watcher, if there is one. A sampler that is
// about to end may put an event at the same time. Then either of the two may stay.
func (w *watcher) put(event []byte) {
	select {
	case <-w.events:
	default:
	}
	select {
	case w.events <- event:
	default:
	}
}
