package debug

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// Handler serves the page and its other forms. Make one with [NewHandler]; the zero
// value is not usable. All its methods are safe for concurrent use.
type Handler struct {
	interval time.Duration // between two events
	patience time.Duration // for a client that does not read

	mu       sync.Mutex // guards what follows; never held while a wheel is asked or a client written to
	wheels   []*wheel   // in the order in which they were added
	watchers map[*watcher]bool
	rest     func() // ends the sampler; nil when none runs, which is when nobody watches
}

// NewHandler returns a handler that shows no wheels yet.
func NewHandler() *Handler {
	return &Handler{
		interval: 250 * time.Millisecond,
		patience: 10 * time.Second,
		watchers: map[*watcher]bool{},
	}
}

// Add shows w under the name, in place of the one that had it before. The handler
// holds the wheel until [Handler.Remove]; one that has been stopped stays on the page,
// which says so. Add panics if w is nil or the name is empty. O(wheels).
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
	h.mu.Lock()
	defer h.mu.Unlock()
	added := &wheel{name: name, source: s, interval: h.interval}
	if i := slices.IndexFunc(h.wheels, func(w *wheel) bool { return w.name == name }); i >= 0 {
		h.wheels[i] = added
		return
	}
	h.wheels = append(h.wheels, added)
}

// Remove shows the wheel of that name no more, and lets go of it. It does nothing if
// there is none. Pages that show it say that it is gone.
func (h *Handler) Remove(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wheels = slices.DeleteFunc(h.wheels, func(w *wheel) bool { return w.name == name })
}

// list returns the wheels as they are now.
func (h *Handler) list() []*wheel {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.wheels)
}

// ServeHTTP answers a request with the form that it asks for; see the package comment.
// Other methods than GET and HEAD get a 405, an unknown form a 400, and an unknown
// wheel a 404 from the forms that are no page.
func (h *Handler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	secure(rw.Header())
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
	switch form(r) {
	case "html":
		serveFile(rw, r, "index.html")
	case "text":
		h.serveText(rw, r, query.Get("wheel"))
	case "json":
		h.serveJSON(rw, r, query.Get("wheel"))
	case "events":
		h.serveEvents(rw, r, query.Get("wheel"))
	default:
		http.Error(rw, "format is one of html, text, json, events", http.StatusBadRequest)
	}
}

// form returns the form that a request asks for. Browsers name text/html among what
// they accept, and curl does not: who has no preference gets what can be read in a
// terminal.
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

// secure lets the page load what comes from its own origin and nothing else, and lets
// no other page have anything of it: no frame around it, no script that reads it.
func secure(header http.Header) {
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept")
}
