package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// Header is the header, with any value, that a request must have to write.
const Header = "X-Tickwheel-Admin"

const (
	maxBody       = 1 << 20          // bytes of a Command
	readTimeout   = 30 * time.Second // of what does not read all of the store
	countTimeout  = 10 * time.Minute // of counts, which does
	healthTimeout = readTimeout / 6
	sickTimeout   = time.Second // of a read after Queue.Health has returned an error
)

// Option sets up a handler.
type Option func(*handler)

// WithWrites allows requests that write. Without it the handler only reads.
func WithWrites() Option { return func(h *handler) { h.writable = true } }

// WithUser sets the function that names the sender of a request for the log of writes,
// for example by a header that an authenticating proxy sets. The default is the address
// from which a request comes. WithUser panics on nil.
func WithUser(user func(*http.Request) string) Option {
	if user == nil {
		panic("admin: WithUser: nil function")
	}
	return func(h *handler) { h.user = user }
}

// WithLogger sets where writes are logged, at level Info. The default is [slog.Default]. It
// panics on nil.
func WithLogger(l *slog.Logger) Option {
	if l == nil {
		panic("admin: WithLogger: nil Logger")
	}
	return func(h *handler) { h.log = l }
}

// WithHosts refuses requests whose Host header is not one of these names or addresses. It
// ignores ports. The default allows any host, for a proxy in front. Set it where a
// browser needs no login, as on localhost: another site can point its own name to your
// address (DNS rebinding), and its pages can then read and write. WithHosts panics
// without a host, and on an empty one.
func WithHosts(hosts ...string) Option {
	if len(hosts) == 0 {
		panic("admin: WithHosts: no host")
	}
	known := map[string]bool{}
	for _, host := range hosts {
		if hostName(host) == "" {
			panic("admin: WithHosts: empty host")
		}
		known[hostName(host)] = true
	}
	return func(h *handler) { h.hosts = known }
}

// hostName returns a host without its port, as names are compared.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(strings.TrimSuffix(host, "."), "[]"))
}

type handler struct {
	q        *durable.Queue
	hosts    map[string]bool // nil: any
	writable bool
	user     func(*http.Request) string
	log      *slog.Logger
}

// NewHandler returns a handler for a path that ends with a slash. The last part of a
// request's path names the answer. The handler is safe for concurrent use. For a closed
// Queue it shows the counts of this process, and an error for the rest. NewHandler panics
// on a nil Queue and a nil Option.
func NewHandler(q *durable.Queue, opts ...Option) http.Handler {
	if q == nil {
		panic("admin: NewHandler: nil Queue")
	}
	h := &handler{q: q, user: func(r *http.Request) string { return r.RemoteAddr }, log: slog.Default()}
	for _, opt := range opts {
		if opt == nil {
			panic("admin: NewHandler: nil Option")
		}
		opt(h)
	}
	return h
}

// read is what a request asks for.
type read func(*handler, context.Context, *reading) (any, error)

var reads = map[string]read{
	"list": (*handler).list, "show": (*handler).show, "why": (*handler).why, "await": (*handler).await, "summary": (*handler).summary, "counts": (*handler).counts,
	"schedules": (*handler).schedules, "workers": (*handler).workers, "limits": (*handler).limits, "pauses": (*handler).pauses,
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	what := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	read, isRead := reads[what]
	write, isWrite := writes[what]
	file, isFile := files[what]
	get := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case h.hosts != nil && !h.hosts[hostName(r.Host)]:
		reply(w, nil, &statusError{http.StatusForbidden, fmt.Sprintf("this is not the host %.200q", r.Host)})
	case isFile && get:
		file.serve(w)
	case isRead && get:
		answer, err := h.read(r, what, read)
		reply(w, answer, err)
	case isWrite && r.Method == http.MethodPost:
		answer, err := h.write(r, what, write)
		reply(w, answer, err)
	case isRead || isWrite || isFile:
		reply(w, nil, &statusError{http.StatusMethodNotAllowed, "there is no " + r.Method + " of " + cmp.Or(what, "the page")})
	default:
		reply(w, nil, &statusError{http.StatusNotFound, "there is no such page"})
	}
}

// reading is a request that reads, and what is wrong with the queue.
type reading struct {
	*http.Request
	unhealthy error
}

// read asks first whether the queue is healthy. An engine whose store is out of reach asks
// it again and again until the context ends, and the health names the cause at once: then
// the read itself has a second, and the cause is its error.
func (h *handler) read(r *http.Request, what string, f read) (any, error) {
	limit := readTimeout
	if what == "counts" {
		limit = countTimeout
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	unhealthy := h.health(ctx)
	if unhealthy != nil {
		ctx, cancel = context.WithTimeoutCause(ctx, sickTimeout, unhealthy)
		defer cancel()
	}
	answer, err := f(h, ctx, &reading{r, unhealthy})
	if err != nil && unhealthy != nil && ctx.Err() != nil {
		err = unhealthy
	}
	return answer, err
}

// secure has a browser load nothing from elsewhere, run no script that is not a file of the
// page, and show the page in no frame.
func secure(header http.Header) {
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
}

// statusError is an error with the status that it has.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

func statusOf(err error) int {
	var s *statusError
	switch {
	case errors.As(err, &s):
		return s.status
	case errors.Is(err, durable.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, durable.ErrInvalid):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// reply writes JSON, in which <, > and & are escaped, so that it is no HTML for anybody.
func reply(w http.ResponseWriter, answer any, err error) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	if err != nil {
		w.WriteHeader(statusOf(err))
		answer = map[string]string{"error": err.Error()}
	}
	text, failed := json.Marshal(answer)
	if failed != nil { // a time of a store that JSON cannot hold, say
		w.WriteHeader(http.StatusInternalServerError)
		text, _ = json.Marshal(map[string]string{"error": "the answer cannot be written as JSON: " + failed.Error()})
	}
	_, _ = w.Write(append(text, '\n')) // else nobody is there to be told
}

const defaultPage = 100

func (h *handler) list(ctx context.Context, r *reading) (any, error) {
	query, n := r.URL.Query(), defaultPage
	f := durable.Filter{Kind: query.Get("kind"), Lane: query.Get("lane")}
	states := map[string]durable.State{"": 0, "waiting": durable.Waiting, "running": durable.Running, "dead": durable.Dead, "done": durable.Done, "canceled": durable.Canceled}
	var ok bool
	if f.State, ok = states[query.Get("state")]; !ok {
		return nil, fmt.Errorf("%w: the state %.200q is not waiting, running, dead, done or canceled", durable.ErrInvalid, query.Get("state"))
	}
	if text := query.Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			return nil, fmt.Errorf("%w: n=%.200q is not a number", durable.ErrInvalid, text)
		}
	}
	for _, pair := range query["meta"] {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("%w: meta=%.200q is not name=value", durable.ErrInvalid, pair)
		}
		if f.Meta == nil {
			f.Meta = map[string]string{}
		}
		f.Meta[name] = value
	}
	infos, next, err := h.q.List(ctx, f, query.Get("after"), n)
	listing := Listing{Jobs: make([]Job, len(infos)), Next: next}
	for i, info := range infos {
		listing.Jobs[i] = short(info)
	}
	return listing, err
}

func (h *handler) show(ctx context.Context, r *reading) (any, error) {
	ref := r.URL.Query().Get("ref")
	info, err := h.q.Get(ctx, durable.Ref(ref))
	if err == durable.ErrNotFound { // and not more, such as "is not a Ref of this queue"
		// A queue keeps nothing of a job that was done or canceled, so that nobody can say which.
		err = fmt.Errorf("%w: %.200q was done, canceled or deleted", err, ref)
	}
	return whole(info), err
}

func (h *handler) why(ctx context.Context, r *reading) (any, error) {
	query := r.URL.Query()
	ask := func() (durable.Reason, error) { return h.q.Why(ctx, durable.Ref(query.Get("ref"))) }
	if query.Has("schedule") {
		ask = func() (durable.Reason, error) { return h.q.WhySchedule(ctx, query.Get("schedule")) }
	}
	reason, err := ask()
	return reasonOf(reason), err
}

// AwaitFor is how long GET await waits for the end of a job before it answers that the job has not ended. A client allows
// that answer so much more time than others. It is short, since a proxy may close a request that takes much longer.
const AwaitFor = 5 * time.Second

func (h *handler) await(ctx context.Context, r *reading) (any, error) {
	within, cancel := context.WithTimeout(ctx, AwaitFor)
	defer cancel()
	info, err := h.q.Await(within, durable.Ref(r.URL.Query().Get("ref")))
	switch {
	case errors.Is(err, durable.ErrEnded):
		return End{State: "unknown"}, nil
	case err != nil && ctx.Err() == nil && within.Err() != nil:
		return End{}, nil
	}
	return End{State: info.State.String(), Error: info.LastError}, err
}

// summary says what is known: an operator looks here when the store is out of order.
func (h *handler) summary(ctx context.Context, r *reading) (any, error) {
	b, unread := h.q.Backlog(ctx)
	st := h.q.Stats()
	now := st.Now
	s := Summary{
		Now: now.UTC(), Writable: h.writable, Healthy: textOf(r.unhealthy), BacklogError: textOf(unread),
		Added: st.Added, Attempts: st.Attempts, Done: st.Done, Failed: st.Failed, Dead: st.Dead, LeaseLost: st.LeaseLost,
		Held: st.Held, Running: st.Running, Stuck: st.Stuck, Lateness: st.Lateness.Counts[:], ClaimAhead: st.ClaimAhead.Seconds(),
		Waiting: b.Waiting, Kinds: make([]Overdue, len(b.Kinds)),
	}
	for i, o := range b.Kinds {
		s.Kinds[i] = Overdue{o.Kind, o.Jobs, o.Oldest, o.Due.UTC(), max(0, now.Sub(o.Due).Seconds()), o.Handled}
	}
	return s, nil
}

// health leaves time for the rest of a read.
func (h *handler) health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return h.q.Health(ctx)
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (h *handler) counts(ctx context.Context, _ *reading) (any, error) {
	groups, c, now := map[Group]int64{}, Counts{Groups: []Group{}}, h.q.Stats().Now
	for i, err := range h.q.All(ctx, durable.Filter{}) {
		if err != nil {
			return nil, err
		}
		groups[Group{Kind: i.Job.Kind, State: i.State.String()}]++
		if i.State != durable.Waiting {
			continue
		}
		if i.Due.Before(now) {
			c.Overdue++
		}
		if c.First == nil || i.Due.Before(*c.First) {
			c.First = timeOf(i.Due)
		}
	}
	for g, n := range groups {
		g.Jobs = n
		c.Groups = append(c.Groups, g)
	}
	slices.SortFunc(c.Groups, byKind)
	return c, nil
}

func (h *handler) schedules(ctx context.Context, _ *reading) (any, error) {
	all := []Schedule{}
	for i, err := range h.q.Schedules(ctx) {
		if err != nil {
			return nil, err
		}
		all = append(all, Schedule{i.Name, i.Spec, i.Job.Kind, i.Paused, timeOf(i.Last), timeOf(i.Next), i.Ref})
	}
	slices.SortFunc(all, func(a, b Schedule) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func (h *handler) workers(ctx context.Context, _ *reading) (any, error) {
	infos, err := h.q.Workers(ctx)
	return workersOf(infos, h.q.Stats().Now), err
}

func (h *handler) limits(ctx context.Context, _ *reading) (any, error) {
	all := []Limit{}
	for i, err := range h.q.Limits(ctx) {
		if err != nil {
			return nil, err
		}
		all = append(all, limitOf(i))
	}
	return all, nil
}

func (h *handler) pauses(ctx context.Context, _ *reading) (any, error) {
	paused, err := h.q.Paused(ctx)
	return append([]durable.Pause{}, paused...), err
}
