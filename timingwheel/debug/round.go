package debug

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"
)

// round is one look at all wheels. Every event of a turn of the sampler is made from the
// same round. So a turn asks each wheel for its Stats once, takes one sample of each
// wheel that is watched, and encodes one event for each of these and one for all who
// watch what is not there. Neither the number of watchers nor the names that they ask for
// add to that.
type round struct {
	wheels map[string]*wheel
	first  string            // the name of the first wheel; empty if there is none
	list   json.RawMessage   // the entries of all wheels, encoded once for all events
	pools  json.RawMessage   // the figures of all pools, likewise
	parked json.RawMessage   // and of all purgatories
	events map[string][]byte // that are made, by the name of the wheel they show; empty for none
	cost   time.Duration     // of all this so far, without what each wheel and purgatory limits
}

// newRound asks all that is shown for what is cheap, and purgatories for the keys with
// most.
func newRound(s shows) *round {
	figures := figuresOfPurgatories(s.parked)
	start := time.Now()
	r := &round{wheels: make(map[string]*wheel, len(s.wheels)), events: map[string][]byte{}}
	entries := make([]entry, 0, len(s.wheels))
	for _, w := range s.wheels {
		stats := w.source.Stats()
		entries = append(entries, entry{w.name, stats.Pending, stats.Closed, stats.HeldUp})
		r.wheels[w.name] = w
	}
	if len(s.wheels) > 0 {
		r.first = s.wheels[0].name
	}
	r.list = encode(entries)
	r.pools = encode(figuresOf(s.pools))
	r.parked = encode(figures)
	r.cost = time.Since(start)
	return r
}

// event returns the event for those who watch the wheel of that name, or the first one if
// it is empty, in the form that goes over the wire.
func (r *round) event(name string) []byte {
	if name == "" {
		name = r.first
	}
	w := r.wheels[name]
	if w == nil {
		name = ""
	}
	if event, ok := r.events[name]; ok {
		return event
	}
	var s sample
	if w != nil {
		s = w.sample()
	}
	start := time.Now()
	e := event{Wheels: r.list, Pools: r.pools, Parked: r.parked}
	if w != nil {
		e.Shown = show(s)
	}
	r.events[name] = slices.Concat([]byte("retry: 1000\ndata: "), encode(e), []byte("\n\n"))
	r.cost += time.Since(start)
	return r.events[name]
}

// encode returns v as JSON on one line.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // nothing in an event can fail to encode
	}
	return bytes.TrimSpace(text)
}
