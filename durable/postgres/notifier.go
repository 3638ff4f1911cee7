package postgres

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

const (
	// window is how far ahead a job may be due for its insert to be announced. A poll
	// finds later jobs in time, before they are claimed. The cost of a poll grows with the
	// number of jobs in its range of time, handed out or not, so a poll for each insert of
	// jobs that are due in seconds would be expensive and of no use.
	window = time.Second

	// announceEvery is the least time between two announcements of one process. A commit
	// with a NOTIFY takes a lock of the whole server: one with each insert would make
	// inserts 20 times slower.
	announceEvery = 20 * time.Millisecond

	announceAgain = 200 * time.Millisecond // after one that could not be sent
)

// announcement says that jobs are due soon, or may be long overdue.
type announcement struct {
	old   bool            // they may be long overdue
	many  bool            // and there may be many of them; this is not sent to other processes
	kinds map[string]span // their kinds, and when jobs of each are due; nil: any
}

// span is when jobs are due, by the server's clock; zero: unknown, from recent until window. A poll
// passes all rows of the span, handed out or not. At 1000 jobs a second that are due within a
// second, polls without it took half of the server's processor time.
type span struct{ from, to time.Time }

func (s span) unknown() bool { return s.from.IsZero() }

func (s span) join(other span) span {
	switch {
	case s.unknown() || other.unknown():
		return span{}
	case other.from.Before(s.from):
		s.from = other.from
	}
	if other.to.After(s.to) {
		s.to = other.to
	}
	return s
}

// recalled tells a Fetch that deferred jobs are free, since the limits or pauses have changed.
var recalled = announcement{old: true, many: true}

func announcementOf(kinds []string, old bool) announcement {
	a := announcement{old: old, kinds: map[string]span{}}
	for _, kind := range kinds {
		a.kinds[kind] = span{}
	}
	return a
}

// add adds a job of a kind. A due time of zero is unknown.
func (a *announcement) add(kind string, due time.Time) {
	a.merge(announcement{kinds: map[string]span{kind: {due, due}}})
}

// merge adds another announcement to this one.
func (a *announcement) merge(other announcement) {
	a.old, a.many = a.old || other.old, a.many || other.many
	switch {
	case a.kinds == nil || other.kinds == nil:
		a.kinds = nil
	default:
		for kind, s := range other.kinds {
			if was, ok := a.kinds[kind]; ok {
				s = s.join(was)
			}
			a.kinds[kind] = s
		}
	}
}

// clocks is how far now may be ahead of the server's clock. If it is further ahead, the last jobs of
// a span are found by the next poll of all kinds.
const clocks = 50 * time.Millisecond

// since returns the due time from which announced jobs of a kind are read.
func (s span) since(now time.Time) time.Time {
	if s.unknown() {
		return now.Add(-recent)
	}
	return s.from.Add(-time.Millisecond) // the server's times are shorter
}

// ahead returns how far ahead a poll for announced jobs reads.
func (a announcement) ahead(now time.Time) time.Duration {
	if len(a.kinds) == 0 {
		return window
	}
	var last time.Duration
	for _, s := range a.kinds {
		if s.unknown() {
			return window
		}
		last = max(last, s.to.Sub(now))
	}
	return min(window, last+clocks)
}

// sentAnnouncement is the form in which an announcement is sent.
type sentAnnouncement struct {
	Old   bool       `json:"old,omitempty"`
	Kinds []string   `json:"kinds,omitempty"` // none: any
	Due   [][2]int64 `json:"due,omitempty"`   // the span of each kind, in microseconds since 1970; none: unknown, as of add_job
	By    string     `json:"by,omitempty"`    // the engine that sends it, and has woken its own
}

// maxNotification is the longest payload of a NOTIFY, in bytes: the server takes 7999.
const maxNotification = 7900

func (a announcement) encode(by string) string {
	sent := sentAnnouncement{Old: a.old, Kinds: slices.Sorted(maps.Keys(a.kinds)), By: by}
	for _, kind := range sent.Kinds {
		s := a.kinds[kind]
		sent.Due = append(sent.Due, [2]int64{s.from.UnixMicro(), s.to.UnixMicro()})
	}
	text, err := json.Marshal(sent)
	if err != nil {
		panic(err) // strings and numbers
	}
	if len(text) > maxNotification {
		return announcement{old: a.old}.encode(by)
	}
	return string(text)
}

// decodeAnnouncement returns the announcement of a text, and the engine that has sent it. One that it
// cannot read counts as overdue jobs of all kinds.
func decodeAnnouncement(text string) (a announcement, by string) {
	var s sentAnnouncement
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return announcement{old: true}, ""
	}
	if len(s.Kinds) == 0 {
		return announcement{old: s.Old}, s.By
	}
	a = announcementOf(s.Kinds, s.Old)
	if len(s.Due) == len(s.Kinds) {
		for i, due := range s.Due {
			a.kinds[s.Kinds[i]] = span{time.UnixMicro(due[0]), time.UnixMicro(due[1])}
		}
	}
	return a, s.By
}

// notifier wakes its listeners. Announcements that a listener has not taken yet become one.
type notifier struct {
	mu        sync.Mutex
	listeners map[*listener]bool
}

type listener struct {
	woken   chan struct{} // of one element
	arrival arrival
	tell    func(driver.Notice) // of whether notifications arrive; does not block

	mu      sync.Mutex
	some    bool // there is an announcement to take
	pending announcement
}

func newNotifier() *notifier { return &notifier{listeners: map[*listener]bool{}} }

// listen returns a listener, and a function that removes it.
func (n *notifier) listen() (*listener, func()) {
	l := &listener{woken: make(chan struct{}, 1), tell: func(driver.Notice) {}}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[l] = true
	return l, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.listeners, l)
	}
}

func (n *notifier) wakeAll(a announcement) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.listeners {
		l.wake(a)
	}
}

func (l *listener) wake(a announcement) {
	l.mu.Lock()
	if l.some {
		l.pending.merge(a)
	} else {
		l.some, l.pending = true, announcement{a.old, a.many, maps.Clone(a.kinds)}
	}
	l.mu.Unlock()
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// take returns all that was announced since the last call, if anything was.
func (l *listener) take() (announcement, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	some := l.some
	l.some = false
	return l.pending, some
}
