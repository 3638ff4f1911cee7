package debug

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// Handler serves the page and its other forms. Make one with [NewHandler]; the zero
// value is not usable. All its methods are safe for concurrent use.
type Handler struct {
	interval time.Duration // between two events
	patience time.Duration // for a client that does not read

	// mu guards what follows. It is never held while a wheel is asked or a client is
	// written to.
	mu       sync.Mutex
	shows    // what was added and not removed
	watchers map[*watcher]bool
	rest     func() // ends the sampler; nil if nobody watches, since then none runs
}

// shows is what a handler shows, each kind in the order in which it was added.
type shows struct {
	wheels []*wheel
	pools  []*namedPool
	parked []*watched
}

// NewHandler returns a handler that shows no wheels yet.
func NewHandler() *Handler {
	return &Handler{
		interval: 250 * time.Millisecond,
		patience: 10 * time.Second,
		watchers: map[*watcher]bool{},
	}
}

// Add shows w under the name. If another wheel has that name, w takes its place. The
// handler holds the wheel until [Handler.Remove]; a wheel that has been stopped stays on
// the page, which says that it is stopped. Bytes of the name that are not valid UTF-8 are
// written as \xff, and so they are in requests for the wheel. Add panics if w is nil or
// the name is empty. O(wheels).
func (h *Handler) Add(name string, w *timingwheel.TimingWheel) {
	if w == nil {
		panic("debug: Add: nil wheel")
	}
	h.add(name, w)
}

func (h *Handler) add(name string, s source) {
	if name == "" {
		panic("debug: Add: empty name")
	}
	name = validName(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wheels = put(h.wheels, &wheel{name: name, source: s, interval: h.interval})
}

// AddPool shows p under the name, in a list of pools that is beside every wheel. If
// another pool has that name, p takes its place; a wheel may have it too. The handler
// holds the pool until [Handler.RemovePool]; a pool that has been closed stays in the
// list, which says that it is closed. Bytes of the name that are not valid UTF-8 are
// written as in [Handler.Add]. AddPool panics if p is nil or the name is empty. O(pools).
func (h *Handler) AddPool(name string, p *pool.Pool) {
	switch {
	case p == nil:
		panic("debug: AddPool: nil pool")
	case name == "":
		panic("debug: AddPool: empty name")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pools = put(h.pools, &namedPool{validName(name), p})
}

// AddPurgatory shows p under the name, in a list of purgatories that is beside every
// wheel: how many operations are parked, the rates at which they come and end, and the
// ten keys with most. A [purgatory.Threshold] may be added too; it has no keys. If
// another purgatory has that name, p takes its place; a wheel or a pool may have it too.
// The handler holds the purgatory until [Handler.RemovePurgatory]; one that has been
// closed stays in the list. Keys are shown as text, by their String method if they have
// one. Only the first 100 characters of a long key are shown. Bytes of the name and of
// keys that are not valid UTF-8 are written as in [Handler.Add].
//
// AddPurgatory panics if p is nil or was not made by purgatory.New or NewThreshold, or if
// the name is empty. O(purgatories).
func (h *Handler) AddPurgatory(name string, p Purgatory) {
	switch {
	case p == nil:
		panic("debug: AddPurgatory: nil purgatory")
	case name == "":
		panic("debug: AddPurgatory: empty name")
	}
	p.Stats() // panics here, and not later where nobody can tell why
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parked = put(h.parked, &watched{name: validName(name), purgatory: p, interval: h.interval, added: time.Now()})
}

// put puts added into the place of what has its name, or at the end.
func put[T interface{ label() string }](all []T, added T) []T {
	i := slices.IndexFunc(all, func(t T) bool { return t.label() == added.label() })
	if i < 0 {
		return append(all, added)
	}
	all[i] = added
	return all
}

// Remove takes the wheel of that name off the page and releases it. It does nothing if no
// wheel has that name. Pages that show the wheel say that it is gone. O(wheels).
func (h *Handler) Remove(name string) {
	name = validName(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wheels = slices.DeleteFunc(h.wheels, func(w *wheel) bool { return w.name == name })
}

// RemovePool takes the pool of that name off the page and releases it. It does nothing if
// no pool has that name. O(pools).
func (h *Handler) RemovePool(name string) {
	name = validName(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pools = slices.DeleteFunc(h.pools, func(p *namedPool) bool { return p.name == name })
}

// RemovePurgatory takes the purgatory of that name off the page and releases it. It does
// nothing if no purgatory has that name. O(purgatories).
func (h *Handler) RemovePurgatory(name string) {
	name = validName(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parked = slices.DeleteFunc(h.parked, func(w *watched) bool { return w.name == name })
}

// list returns what is shown at present.
func (h *Handler) list() shows {
	h.mu.Lock()
	defer h.mu.Unlock()
	return shows{slices.Clone(h.wheels), slices.Clone(h.pools), slices.Clone(h.parked)}
}

// ServeHTTP answers a request in the form that it asks for; see the package comment. A
// method other than GET and HEAD gets status 405, an unknown form gets 400, and a request
// that came in on a loopback address for a foreign host name gets 403. For an unknown
// wheel the text, JSON and profile forms answer 404, and the page says that there is no
// such wheel. For a wheel without a profile the profile form answers 404, too.
func (h *Handler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	secure(rw.Header())
	if foreign(r) {
		http.Error(rw, "on a loopback address this page answers only to an IP address, to localhost "+
			"and to names without a dot; a proxy in front of it must set the Host header", http.StatusForbidden)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		rw.Header().Set("Allow", "GET, HEAD")
		http.Error(rw, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	query := r.URL.Query()
	if file := query.Get("file"); file != "" {
		serveFile(rw, r, file)
		return
	}
	name := validName(query.Get("wheel"))
	switch form(r) {
	case "html":
		serveFile(rw, r, "index.html")
	case "text":
		h.serveText(rw, r, name)
	case "json":
		h.serveJSON(rw, r, name)
	case "profile":
		h.serveProfile(rw, r, name)
	case "events":
		h.serveEvents(rw, r, name)
	default:
		http.Error(rw, "format is one of html, text, json, profile, events", http.StatusBadRequest)
	}
}

// form returns the form that a request asks for. A browser names text/html among what it
// accepts. Curl names nothing, and gets what can be read in a terminal.
func form(r *http.Request) string {
	if f := r.URL.Query().Get("format"); f != "" {
		return f
	}
	accept := strings.Join(r.Header.Values("Accept"), ",")
	for _, f := range []struct{ mediaType, form string }{
		{"text/html", "html"},
		{"text/event-stream", "events"},
		{"application/json", "json"},
	} {
		if strings.Contains(accept, f.mediaType) {
			return f.form
		}
	}
	return "text"
}

// secure allows the page to load what comes from its own origin and nothing else. It
// allows no other page to put a frame around this one, or to read it by script.
func secure(header http.Header) {
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept")
}
