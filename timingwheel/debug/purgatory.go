package debug

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/purgatory"
)

// Purgatory is a purgatory that a handler can show. Every [purgatory.Purgatory] is one,
// with any type of keys, and so is every [purgatory.Threshold].
type Purgatory interface {
	Stats() purgatory.Stats
}

// keyed is a Purgatory that can tell the keys with most. A Threshold has no keys.
type keyed interface {
	Top(n int) []purgatory.KeyCount
}

const (
	topKeys = 10  // how many keys are shown
	keyText = 100 // the most runes of each: a key may be of any length, and an event is small
)

// watched is a purgatory with its name, and the last keys that were found with most.
type watched struct {
	name      string
	purgatory Purgatory
	interval  time.Duration
	added     time.Time

	// mu is held while the keys are counted, so that all who wait for that share it.
	mu    sync.Mutex
	keys  []purgatory.KeyCount // guarded by mu
	taken time.Time            // guarded by mu
	costs costs                // guarded by mu
}

func (w *watched) label() string { return w.name }

// purgatoryFigures is what a purgatory does at one moment.
type purgatoryFigures struct {
	Name  string               `json:"name"`
	Age   time.Duration        `json:"age"` // since it was added; the page takes rates by it
	Stats purgatory.Stats      `json:"stats"`
	Keys  []purgatory.KeyCount `json:"keys"` // those with most; may be older than stats; null for a Threshold
}

// figures asks for the Stats, which are cheap, and for the keys.
func (w *watched) figures() purgatoryFigures {
	keys := w.top()
	return purgatoryFigures{w.name, time.Since(w.added), w.purgatory.Stats(), keys}
}

// top returns the keys with most operations, or nil if there are no keys. To count them is
// a pass over all that is parked, so it is limited as a wheel's samples are.
func (w *watched) top() []purgatory.KeyCount {
	p, ok := w.purgatory.(keyed)
	if !ok {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys != nil && time.Since(w.taken) < max(w.interval/2, w.costs.pause()) {
		return w.keys
	}
	start := time.Now()
	keys := make([]purgatory.KeyCount, 0, topKeys)
	for _, k := range p.Top(topKeys) {
		keys = append(keys, purgatory.KeyCount{Key: clip(k.Key), Pending: k.Pending})
	}
	w.keys, w.taken = keys, time.Now()
	w.costs.add(w.taken.Sub(start))
	return keys
}

// clip returns the beginning of a key, as valid UTF-8.
func clip(key string) string {
	n := 0
	for i := range key {
		if n == keyText {
			return validName(key[:i]) + "…"
		}
		n++
	}
	return validName(key)
}

// figuresOfPurgatories asks each of them. It returns no nil, which JSON would not write
// as a list.
func figuresOfPurgatories(purgatories []*watched) []purgatoryFigures {
	all := make([]purgatoryFigures, 0, len(purgatories))
	for _, w := range purgatories {
		all = append(all, w.figures())
	}
	return all
}

// writePurgatory writes two lines for a reader at a terminal. Names and keys are quoted,
// as the name of a wheel is.
func writePurgatory(out io.Writer, p purgatoryFigures) {
	s := &p.Stats
	if p.Keys == nil {
		fmt.Fprintf(out, "threshold %q: %d parked; so far %d satisfied, %d expired, %d canceled, %d closed\n",
			p.Name, s.Pending, s.Satisfied, s.Expired, s.Canceled, s.Closed)
		return
	}
	fmt.Fprintf(out, "purgatory %q: %d parked, keys: %d; so far %d satisfied, %d expired, %d canceled, %d closed, %d questions\n",
		p.Name, s.Pending, s.Keys, s.Satisfied, s.Expired, s.Canceled, s.Closed, s.Checks)
	if len(p.Keys) == 0 {
		return
	}
	var keys []string
	for _, k := range p.Keys {
		keys = append(keys, fmt.Sprintf("%d %q", k.Pending, k.Key))
	}
	fmt.Fprintf(out, "  keys with most: %s\n", strings.Join(keys, ", "))
}
