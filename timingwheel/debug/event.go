package debug

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// maxSegments is the largest number of segments of a ring. More would be narrower than a
// line on the screen, and make an event longer.
const maxSegments = 256

// maxMoments is the largest number of moments that the page lists.
const maxMoments = 8

// event is what the page gets a few times a second. Times are in nanoseconds.
type event struct {
	Wheels json.RawMessage `json:"wheels"`          // an entry for each wheel
	Pools  json.RawMessage `json:"pools"`           // a poolFigures for each pool
	Parked json.RawMessage `json:"purgatories"`     // a purgatoryFigures for each purgatory
	Shown  *shown          `json:"shown,omitempty"` // the wheel that is watched, if it exists
}

// entry is a wheel in the list of all wheels.
type entry struct {
	Name    string        `json:"name"`
	Pending int64         `json:"pending"`
	Stopped bool          `json:"stopped"`
	HeldUp  time.Duration `json:"heldUp"`
}

// shown is the wheel that is watched. All that the page shows of a wheel is a field
// here, or is in its Stats.
type shown struct {
	Name      string            `json:"name"`
	Taken     int64             `json:"taken"` // tells one sample from the next, where events are more often
	Stats     timingwheel.Stats `json:"stats"`
	Recent    recent            `json:"recent"`
	Due       int64             `json:"due"`
	Cascading int64             `json:"cascading"`
	Rings     []ring            `json:"rings"` // the finest first
	Next      []moment          `json:"next"`
}

// ring is a level as it is drawn: neighboring slots are merged into segments.
type ring struct {
	Tick        time.Duration `json:"tick"`
	Interval    time.Duration `json:"interval"`
	Slots       int           `json:"slots"`
	CurrentTime time.Duration `json:"currentTime"`
	Hand        int           `json:"hand"` // a slot
	Buckets     int           `json:"buckets"`
	Entries     int64         `json:"entries"`
	Cascaded    int64         `json:"cascaded"`
	Segments    []int64       `json:"segments"` // the number of entries in each
}

// moment is a time at which something is due, and how many.
type moment struct {
	In time.Duration `json:"in"` // after the sample; negative if it is overdue
	N  int           `json:"n"`
}

// serveEvents sends the stream until the client goes away. There is an event in every
// interval, whether or not anything has changed. So the events are a heartbeat too.
func (h *Handler) serveEvents(rw http.ResponseWriter, r *http.Request, name string) {
	rw.Header().Set("Content-Type", "text/event-stream")
	rw.Header().Set("X-Accel-Buffering", "no") // or nginx holds events back
	if r.Method == http.MethodHead {
		return
	}
	// The server's WriteTimeout is for answers that end, so each event gets a deadline of
	// its own. If a middleware hides the connection, WriteTimeout stays: it ends the
	// stream, and the page opens a new one.
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

// event returns an event of a round of its own.
func (h *Handler) event(name string) []byte {
	return newRound(h.list()).event(name)
}

func show(s sample) *shown {
	e := &shown{
		Name:      s.Name,
		Taken:     s.taken.UnixNano(),
		Stats:     s.Stats,
		Recent:    s.Recent,
		Due:       s.Snapshot.Due,
		Cascading: s.Snapshot.Cascading,
		Rings:     make([]ring, 0, len(s.Snapshot.Levels)),
		Next:      moments(s.Snapshot.Next, s.now),
	}
	e.Stats.Levels = nil // the rings have them
	for _, l := range s.Snapshot.Levels {
		e.Rings = append(e.Rings, ring{
			l.Tick, l.Interval, l.Slots, l.CurrentTime, l.Hand, l.Buckets, l.Entries, l.Cascaded, segments(l.Occupied),
		})
	}
	return e
}

// segments merges neighboring slots, so that there are at most maxSegments. The number of
// slots is a power of two, so all segments have the same number of them.
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

// moments counts the deadlines of each tick. All that are overdue are one moment, that of
// the oldest: whether they were due one tick ago or two, they are due now. If there are
// as many deadlines as were asked for, there may be more of the last moment, so it is
// left out unless it is the only one.
func moments(next []time.Time, now time.Time) []moment {
	found := []moment{}
	for _, at := range next {
		in := at.Sub(now)
		last := len(found) - 1
		if last >= 0 && (found[last].In == in || in <= 0) {
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
