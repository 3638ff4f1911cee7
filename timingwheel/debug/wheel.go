package debug

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// source is what the handler asks of a wheel: methods that only read.
type source interface {
	Stats() timingwheel.Stats
	Snapshot(next int) timingwheel.Snapshot
	WriteProfile(out io.Writer) error
	Now() time.Time
}

// nextDeadlines is how many of the next deadlines a sample has. The page shows fewer
// lines, but many deadlines may be of the same tick, which is one line.
const nextDeadlines = 64

// wheel is a source with its name and the last sample of it.
type wheel struct {
	name     string
	source   source
	interval time.Duration

	// mu is held while a sample is taken, so that all who wait for one share it.
	mu      sync.Mutex
	last    sample  // guarded by mu
	costs   costs   // guarded by mu
	history history // guarded by mu
}

func (w *wheel) label() string { return w.name }

// sample is what was found in a wheel at one time. It does not change any more, so many
// may read it.
type sample struct {
	Name     string               `json:"name"`
	Stats    timingwheel.Stats    `json:"stats"`
	Recent   recent               `json:"recent"`
	Snapshot timingwheel.Snapshot `json:"snapshot"`

	taken time.Time // when it was complete
	now   time.Time // the same by the wheel's clock, which may be a manual one
}

// sample returns what is in the wheel now, or was there a moment ago. However many ask, a
// sample is taken at most twice in an interval, and samples take at most one part in
// share of a processor.
func (w *wheel) sample() sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.last.taken) < max(w.interval/2, w.costs.pause()) {
		return w.last
	}
	start := time.Now()
	s := sample{Name: w.name, Stats: w.source.Stats(), Snapshot: w.source.Snapshot(nextDeadlines)}
	s.taken, s.now = time.Now(), w.source.Now()
	s.Recent = w.history.add(start, s.Stats.Lateness)
	w.costs.add(s.taken.Sub(start))
	w.last = s
	return s
}

// validName returns name with each byte that is not valid UTF-8 in the form \xff. In JSON
// and in a URL all such bytes would become the same character, so that two names could
// not be told apart and a wheel could not be asked for.
func validName(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var valid strings.Builder
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&valid, `\x%02x`, name[0])
		} else {
			valid.WriteString(name[:size])
		}
		name = name[size:]
	}
	return valid.String()
}
