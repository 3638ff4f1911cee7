package debug

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// maxSegments is how many segments a ring is drawn with at the most. More would be
// narrower than a line on the screen, and make an event longer.
const maxSegments = 256

// maxMoments is how many of the next deadlines the page lists.
const maxMoments = 8

// event is what the page gets a few times a second. Times are nanoseconds.
type event struct {
	Wheels []entry `json:"wheels"`          // all that there are
	Shown  *shown  `json:"shown,omitempty"` // the one that is watched; none of that name: nothing
}

// entry is a wheel in the list of all.
type entry struct {
	Name    string `json:"name"`
	Pending int64  `json:"pending"`
	Stopped bool   `json:"stopped"`
}

// shown is the wheel that is watched.
type shown struct {
	Name      string            `json:"name"`
	Stats     timingwheel.Stats `json:"stats"`
	Lateness  quantiles         `json:"lateness"`
	Due       int64             `json:"due"`
	Cascading int64             `json:"cascading"`
	Rings     []ring            `json:"rings"` // the finest first
	Next      []moment          `json:"next"`
}

type quantiles struct {
	P50 time.Duration `json:"p50"`
	P99 time.Duration `json:"p99"`
}

// ring is a level as it is drawn: neighbouring slots are merged into segments.
type ring struct {
	Tick        time.Duration `json:"tick"`
	Interval    time.Duration `json:"interval"`
	Slots       int           `json:"slots"`
	CurrentTime time.Duration `json:"currentTime"`
	Hand        int           `json:"hand"` // a slot
	Buckets     int           `json:"buckets"`
	Entries     int64         `json:"entries"`
	Cascaded    int64         `json:"cascaded"`
	Segments    []int64       `json:"segments"` // how much each holds
}

// moment is when something is due, and how much.
type moment struct {
	In time.Duration `json:"in"` // from the sample on; negative if it is overdue
	N  int           `json:"n"`
}

// serveEvents sends the stream until the client goes away. An event comes at every
// interval, whether anything has changed or not, so that it is a heartbeat too.
func (h *Handler) serveEvents(rw http.ResponseWriter, r *http.Request, name string) {
	rw.Header().Set("Content-Type", "text/event-stream")
	rw.Header().Set("X-Accel-Buffering", "no") // nginx would collect events
	if r.Method == http.MethodHead {
		return
	}
	// The server's WriteTimeout is for answers that end. Where a middleware hides the
	// connection it stays, and the page begins anew whenever it strikes.
	stream := http.NewResponseController(rw)
	w := h.watch(name)
	defer h.leave(w)
	send := func(event []byte) bool {
		stream.SetWriteDeadline(time.Now().Add(h.patience))
		_, err := rw.Write(event)
		return err == nil && stream.Flush() == nil
	}
	for ok := send(h.event(name)); ok; {
		select {
		case <-r.Context().Done():
			return
		case event := <-w.events:
			ok = send(event)
		}
	}
}

// event returns the event for those who watch the wheel of that name, or the first if
// it is empty, as it goes over the wire.
func (h *Handler) event(name string) []byte {
	e := event{Wheels: []entry{}}
	for i, w := range h.list() {
		if w.name == name || name == "" && i == 0 {
			s := w.sample()
			e.Shown = show(s)
			e.Wheels = append(e.Wheels, entry{w.name, s.Stats.Pending, s.Stats.Stopped})
			continue
		}
		stats := w.source.Stats()
		e.Wheels = append(e.Wheels, entry{w.name, stats.Pending, stats.Stopped})
	}
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // nothing in an event can fail to encode
	}
	return slices.Concat([]byte("retry: 1000\ndata: "), bytes.TrimSpace(text), []byte("\n\n"))
}

func show(s sample) *shown {
	e := &shown{
		Name:      s.Name,
		Stats:     s.Stats,
		Lateness:  quantiles{s.Stats.Lateness.Quantile(0.5), s.Stats.Lateness.Quantile(0.99)},
		Due:       s.Snapshot.Due,
		Cascading: s.Snapshot.Cascading,
		Rings:     make([]ring, 0, len(s.Snapshot.Levels)),
		Next:      moments(s.Snapshot.Next, s.taken),
	}
	e.Stats.Levels = nil // the rings have them
	for _, l := range s.Snapshot.Levels {
		e.Rings = append(e.Rings, ring{
			l.Tick, l.Interval, l.Slots, l.CurrentTime, l.Hand, l.Buckets, l.Entries, l.Cascaded, segments(l.Occupied),
		})
	}
	return e
}

// segments merges neighbouring slots, as many as make no more than maxSegments. Slots
// are a power of two, so each segment has the same number of them.
func segments(occupied []int32) []int64 {
	each := max(1, (len(occupied)+maxSegments-1)/maxSegments)
	merged := make([]int64, 0, len(occupied)/each)
	for slots := range slices.Chunk(occupied, each) {
		sum := int64(0)
		for _, n := range slots {
			sum += int64(n)
		}
		merged = append(merged, sum)
	}
	return merged
}

// moments counts the deadlines of each tick. When there are as many deadlines as were
// asked for, the last tick may have more of them, and is left out unless it is alone.
func moments(next []time.Time, now time.Time) []moment {
	found := []moment{}
	for _, at := range next {
		in := at.Sub(now)
		if last := len(found) - 1; last >= 0 && found[last].In == in {
			found[last].N++
			continue
		}
		found = append(found, moment{in, 1})
	}
	if len(next) == nextDeadlines && len(found) > 1 {
		found = found[:len(found)-1]
	}
	return found[:min(len(found), maxMoments)]
}
