package debug

import (
	"context"
	"time"
)

// watcher is a client of the stream. Its channel has room for one event: a slow client
// finds the latest there, and misses those between. So it holds up nobody, and takes
// no more memory than one event.
type watcher struct {
	name   string // of the wheel that it wants to see; empty for the first
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

// run is the sampler. A watcher gets its first event elsewhere, so run begins with a
// pause. Where an event is dear, the pause is longer.
func (h *Handler) run(ctx context.Context) {
	pause := h.interval
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		start := time.Now()
		h.publish()
		pause = max(h.interval, share*time.Since(start))
	}
}

// publish makes one event for each wheel that is watched, and leaves it with all who
// watch it.
func (h *Handler) publish() {
	events := map[string][]byte{}
	for _, w := range h.everyone() {
		if events[w.name] == nil {
			events[w.name] = h.event(w.name)
		}
		w.put(events[w.name])
	}
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

// put replaces the event that waits for a watcher, if one does. Should a sampler that
// is about to end put one at the same time, either may be the one that stays.
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
