package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/admin"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// patience limits how long a test waits for an event. It is a bound, not a measure.
const patience = 5 * time.Minute

// evil is what a page must not run.
const evil = `</script><script>alert(1)</script><img src=x onerror=alert(1)>"'&`

// used returns a queue that runs, with a job of each state, each of hostile texts.
func used(t *testing.T) (q *durable.Queue, waiting, running, dead durable.Ref) {
	q, err := durable.Open(t.Context(), memory.New(nil).Open())
	require.NoError(t, err)
	begun, release := make(chan bool, 10), make(chan bool)
	q.Handle("dies", func(context.Context, *durable.Attempt) error { return durable.Discard(errors.New(evil)) })
	q.Handle("runs", func(context.Context, *durable.Attempt) error {
		begun <- true
		<-release
		return nil
	})
	add := func(j durable.Job) durable.Ref {
		ref, err := q.Add(t.Context(), j)
		require.NoError(t, err)
		return ref
	}
	waiting = add(durable.Job{Kind: evil, Payload: []byte(evil), After: time.Hour, Lane: evil, Key: evil, Meta: map[string]string{"a": evil}})
	running, dead = add(durable.Job{Kind: "runs"}), add(durable.Job{Kind: "dies"})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	t.Cleanup(func() {
		close(release)
		stop()
		require.NoError(t, <-done)
		require.NoError(t, q.Close())
	})
	<-begun
	require.Eventually(t, func() bool { return q.Stats().Dead == 1 }, patience, time.Millisecond)
	return q, waiting, running, dead
}

// get asks a handler, and reads its answer into v.
func get(t *testing.T, h http.Handler, path string, v any) *httptest.ResponseRecorder {
	t.Helper()
	return answer(t, h, httptest.NewRequest("GET", path, nil), v)
}

func post(t *testing.T, h http.Handler, path, body string, v any) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set(admin.Header, "1")
	return answer(t, h, r, v)
}

func answer(t *testing.T, h http.Handler, r *http.Request, v any) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if v != nil {
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), v), w.Body)
	}
	return w
}

func command(t *testing.T, c admin.Command) string {
	text, err := json.Marshal(c)
	require.NoError(t, err)
	return string(text)
}

func TestReads(t *testing.T) {
	q, waiting, running, dead := used(t)
	h := admin.NewHandler(q)
	var l admin.Listing
	get(t, h, "/jobs/list", &l)
	require.Len(t, l.Jobs, 3)
	require.Equal(t, []durable.Ref{running, waiting, dead}, []durable.Ref{l.Jobs[0].Ref, l.Jobs[1].Ref, l.Jobs[2].Ref})
	require.Equal(t, evil, l.Jobs[2].Error)
	require.Empty(t, l.Jobs[1].Payload)
	require.Equal(t, len(evil), l.Jobs[1].Size)
	get(t, h, "/list?n=1", &l)
	require.Len(t, l.Jobs, 1)
	get(t, h, "/list?n=2&after="+url.QueryEscape(l.Next), &l)
	require.Equal(t, waiting, l.Jobs[0].Ref)
	for query, want := range map[string]durable.Ref{
		"state=dead": dead, "kind=runs": running, "lane=" + url.QueryEscape(evil): waiting, "meta=" + url.QueryEscape("a="+evil): waiting,
	} {
		l = admin.Listing{}
		get(t, h, "/list?"+query, &l)
		require.Len(t, l.Jobs, 1, query)
		require.Equal(t, want, l.Jobs[0].Ref, query)
	}
	var j admin.Job
	get(t, h, "/show?ref="+url.QueryEscape(string(waiting)), &j)
	require.Equal(t, []string{evil, evil, evil, evil}, []string{j.Kind, j.Payload, j.Key, j.Lane})
	get(t, h, "/show?ref="+url.QueryEscape(string(dead)), &j)
	require.Len(t, j.Errors, 1)
	for ref, want := range map[durable.Ref]durable.Cause{waiting: durable.CauseNotDue, running: durable.CauseRunning, dead: durable.CauseDead} {
		var why admin.Reason
		get(t, h, "/why?ref="+url.QueryEscape(string(ref)), &why)
		require.Equal(t, want, why.Cause)
		require.NotEmpty(t, why.Text)
		require.Equal(t, ref, why.Job.Ref)
		require.Len(t, why.Workers, map[bool]int{true: 1}[ref == running])
	}
	var e admin.End
	get(t, h, "/await?ref="+url.QueryEscape(string(dead)), &e)
	require.Equal(t, admin.End{State: "dead", Error: evil}, e)
	e = admin.End{}
	get(t, h, "/await?ref="+url.QueryEscape(string(running)), &e)
	require.Zero(t, e, "it has not ended")
	for _, what := range []string{"why", "await"} {
		require.Equal(t, http.StatusNotFound, get(t, h, "/"+what+"?ref=no", &struct{}{}).Code)
	}
	require.Equal(t, http.StatusNotFound, get(t, h, "/why?schedule=no", &struct{}{}).Code)
	var s admin.Summary
	get(t, h, "/summary", &s)
	require.Equal(t, []int64{3, 2, 1, 1}, []int64{s.Added, s.Attempts, s.Dead, s.Waiting})
	require.False(t, s.Writable)
	require.Empty(t, s.Healthy)
	var c admin.Counts
	get(t, h, "/counts", &c)
	require.Equal(t, []admin.Group{{evil, "waiting", 1}, {"dies", "dead", 1}, {"runs", "running", 1}}, c.Groups)
	var w []admin.Worker
	get(t, h, "/workers", &w)
	require.Len(t, w, 1)
	require.Equal(t, int64(1), w[0].Jobs)
	require.True(t, w[0].Alive)
	require.NoError(t, q.SetSchedule(t.Context(), evil, "@every 1h", durable.Job{Kind: "runs"}))
	var all []admin.Schedule
	get(t, h, "/schedules", &all)
	require.Equal(t, evil, all[0].Name)
	require.NotNil(t, all[0].Next)

	late, err := q.Add(t.Context(), durable.Job{Kind: "nobody's"})
	require.NoError(t, err)
	info, err := q.Get(t.Context(), late)
	require.NoError(t, err)
	get(t, h, "/summary", &s)
	require.Len(t, s.Kinds, 1)
	require.Positive(t, s.Kinds[0].Age)
	require.Equal(t, admin.Overdue{Kind: "nobody's", Jobs: 1, Oldest: late, Due: info.Due.UTC(), Age: s.Kinds[0].Age}, s.Kinds[0])
	get(t, h, "/counts", &c)
	require.EqualValues(t, 1, c.Overdue)
	require.True(t, info.Due.Equal(*c.First))
}

// Ages, and whether a worker lives, are by the engine's clock: that of this machine may be set to anything.
func TestClock(t *testing.T) {
	for _, off := range []time.Duration{-1000 * time.Hour, 1000 * time.Hour} {
		clock := memory.NewClock(time.Now().Add(off))
		q, err := durable.Open(t.Context(), memory.New(clock).Open())
		require.NoError(t, err)
		begun := make(chan bool, 1)
		q.Handle("runs", func(ctx context.Context, _ *durable.Attempt) error {
			begun <- true
			<-ctx.Done()
			return nil
		})
		refs, err := q.AddMany(t.Context(), durable.Job{Kind: "runs"}, durable.Job{Kind: "nobody's"}, durable.Job{Kind: "later", After: time.Hour})
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- q.Run(t.Context()) }()
		<-begun
		clock.Set(clock.Now().Add(time.Second))
		h := admin.NewHandler(q)
		var s admin.Summary
		get(t, h, "/summary", &s)
		require.True(t, clock.Now().Equal(s.Now), "%v", s.Now)
		require.Equal(t, 1.0, s.Kinds[0].Age)
		var c admin.Counts
		get(t, h, "/counts", &c)
		require.EqualValues(t, 1, c.Overdue)
		var all []admin.Worker
		get(t, h, "/workers", &all)
		require.True(t, all[0].Alive)
		var why admin.Reason
		get(t, h, "/why?ref="+url.QueryEscape(string(refs[0])), &why)
		require.Equal(t, durable.CauseRunning, why.Cause)
		require.NoError(t, q.Close())
		require.NoError(t, <-done)
	}
}

// A page whose name was made to lead here gets nothing, and has nothing done.
func TestHosts(t *testing.T) {
	q, _, _, _ := used(t)
	h := admin.NewHandler(q, admin.WithWrites(), admin.WithHosts("localhost", "::1", "Mails.example:443"))
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8080": 200, "LOCALHOST.:8080": 200, "[::1]:8080": 200, "[::1]": 200, "mails.example": 200,
		"": 403, "evil.example": 403, "evil.example:8080": 403, "localhost.evil.example": 403, "127.0.0.1": 403, "[::1]evil": 403,
	} {
		for _, r := range []*http.Request{
			httptest.NewRequest(http.MethodGet, "/list", nil), httptest.NewRequest(http.MethodGet, "/", nil),
			httptest.NewRequest(http.MethodPost, "/pause", strings.NewReader(`{"kind": "nobody's"}`)),
		} {
			r.Host = host
			r.Header.Set(admin.Header, "x")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, want, w.Code, "%s of %q: %s", r.Method, host, w.Body)
		}
	}
	require.PanicsWithValue(t, "admin: WithHosts: no host", func() { admin.WithHosts() })
	require.PanicsWithValue(t, "admin: WithHosts: empty host", func() { admin.WithHosts(":80") })
}

// refused is an engine whose store refuses every connection, once it is down: it says so of
// the clock, and tries the rest again until the context ends.
type refused struct {
	driver.Engine
	down  atomic.Bool
	fails bool // when all jobs are read
}

var errRefused = errors.New("connection refused")

func (e *refused) try(ctx context.Context) error {
	if !e.down.Load() {
		return nil
	}
	<-ctx.Done()
	return errRefused
}

func (e *refused) Now(ctx context.Context) (time.Time, time.Duration, error) {
	if e.down.Load() {
		return time.Time{}, 0, errRefused
	}
	return e.Engine.Now(ctx)
}

func (e *refused) Backlog(ctx context.Context) (driver.Backlog, error) {
	return driver.Backlog{}, e.try(ctx)
}

func (e *refused) Get(ctx context.Context, ref durable.Ref) (driver.Info, error) {
	return driver.Info{}, e.try(ctx)
}

func (e *refused) Page(ctx context.Context, f driver.Filter, m driver.Cursor, n int) ([]driver.Info, driver.Cursor, error) {
	return nil, m, e.try(ctx)
}

func (e *refused) Scan(ctx context.Context, f driver.Filter) iter.Seq2[driver.Info, error] {
	if e.fails {
		e.down.Store(true)
	}
	return func(yield func(driver.Info, error) bool) {
		if err := e.try(ctx); err != nil {
			yield(driver.Info{}, err)
		}
	}
}

func (e *refused) Schedules(ctx context.Context) iter.Seq2[driver.Schedule, error] {
	return func(yield func(driver.Schedule, error) bool) {
		if err := e.try(ctx); err != nil {
			yield(driver.Schedule{}, err)
		}
	}
}

func (e *refused) Progress(ctx context.Context, refs []driver.Ref) ([]driver.Progress, []error) {
	return make([]driver.Progress, len(refs)), slices.Repeat([]error{e.try(ctx)}, len(refs))
}
func (e *refused) Workers(ctx context.Context) ([]driver.WorkerInfo, error) { return nil, e.try(ctx) }
func (e *refused) FlowControl(ctx context.Context) (*driver.FlowControl, error) {
	return &driver.FlowControl{}, e.try(ctx)
}

// Of a queue whose store is out of reach each read says so in a second, and so does one of
// all jobs that the outage cuts off, after ten minutes.
func TestStoreOutOfReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &refused{Engine: memory.New(nil).Open()}
		q, err := durable.Open(t.Context(), e, durable.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		defer q.Close()
		h := admin.NewHandler(q)
		e.down.Store(true)
		for _, what := range []string{"list", "show?ref=a", "why?ref=a", "await?ref=a", "counts", "schedules", "workers", "limits", "pauses"} {
			began := time.Now()
			var wrong struct{ Error string }
			require.Equal(t, http.StatusServiceUnavailable, get(t, h, "/"+what, &wrong).Code, what)
			require.Contains(t, wrong.Error, "does not answer: connection refused", what)
			require.LessOrEqual(t, time.Since(began), time.Second, what)
		}
		began := time.Now()
		var s admin.Summary
		require.Equal(t, http.StatusOK, get(t, h, "/summary", &s).Code)
		require.Contains(t, s.Healthy, "does not answer: connection refused")
		require.Contains(t, s.BacklogError, "connection refused")
		require.LessOrEqual(t, time.Since(began), time.Second)

		e.down.Store(false)
		e.fails = true
		began = time.Now()
		require.Equal(t, http.StatusServiceUnavailable, get(t, h, "/counts", &struct{}{}).Code)
		require.LessOrEqual(t, time.Since(began), 10*time.Minute)
	})
}

// sick is an engine that once it is ill cannot count what waits, and does not tell its time.
type sick struct {
	driver.Engine
	ill atomic.Bool
}

func (e *sick) Backlog(context.Context) (driver.Backlog, error) {
	return driver.Backlog{}, errors.New("the disk is on fire")
}

func (e *sick) Now(ctx context.Context) (time.Time, time.Duration, error) {
	if !e.ill.Load() {
		return e.Engine.Now(ctx)
	}
	<-ctx.Done()
	return time.Time{}, 0, ctx.Err()
}

// A summary says what is known and what is not: an operator looks there when the store is
// out of order.
func TestSummaryOfSickEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &sick{Engine: memory.New(nil).Open()}
		q, err := durable.Open(t.Context(), e)
		require.NoError(t, err)
		defer q.Close()
		_, err = q.Add(t.Context(), durable.Job{Kind: "k", After: time.Hour})
		require.NoError(t, err)
		e.ill.Store(true)
		var s admin.Summary
		began := time.Now()
		get(t, admin.NewHandler(q), "/summary", &s)
		require.Less(t, time.Since(began), 10*time.Second) // of the bubble
		require.EqualValues(t, 1, s.Added)
		require.Contains(t, s.Healthy, "does not answer")
		require.Equal(t, "the disk is on fire", s.BacklogError)
	})
}

// Nothing that is answered can be taken for HTML, and a browser is told to load nothing.
func TestHostileTexts(t *testing.T) {
	q, waiting, _, dead := used(t)
	h := admin.NewHandler(q)
	for _, path := range []string{
		"/list", "/show?ref=" + url.QueryEscape(string(waiting)), "/show?ref=" + url.QueryEscape(string(dead)), "/why?ref=" + url.QueryEscape(string(dead)), "/counts", "/summary",
		"/show?ref=" + url.QueryEscape(evil), "/list?state=" + url.QueryEscape(evil), "/list?after=" + url.QueryEscape(evil), "/" + url.PathEscape(evil),
	} {
		w := get(t, h, path, &map[string]any{})
		require.NotContains(t, w.Body.String(), "<", path)
		require.Equal(t, "application/json; charset=utf-8", w.Header().Get("Content-Type"))
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
		require.NotContains(t, w.Header().Get("Content-Security-Policy"), "unsafe")
	}
}

// The page is where the handler is mounted, with a slash at its end, and asks for files
// beside it. It needs nothing from elsewhere, and has no script and no style that is not a
// file: the policy would refuse it.
func TestPage(t *testing.T) {
	q, _, _, _ := used(t)
	h := admin.NewHandler(q)
	page := answer(t, h, httptest.NewRequest("GET", "/admin/jobs/", nil), nil)
	require.Equal(t, "text/html; charset=utf-8", page.Header().Get("Content-Type"))
	require.Contains(t, page.Header().Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; style-src 'self'")
	require.Contains(t, page.Header().Get("Content-Security-Policy"), "require-trusted-types-for 'script'")
	asked := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page.Body.String(), -1)
	require.Greater(t, len(asked), 6)
	for _, file := range asked {
		w := answer(t, h, httptest.NewRequest("GET", "/admin/jobs/"+file[1], nil), nil)
		require.Equal(t, 200, w.Code, file[1])
		require.NotEmpty(t, w.Body.String(), file[1])
		if strings.Contains(w.Header().Get("Content-Type"), "json") {
			continue
		}
		require.NotRegexp(t, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://[^w]`, w.Body.String(), file[1])
	}
	require.NotRegexp(t, `<style|style=|<script>|\son[a-z]+=`, page.Body.String())
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		require.Equal(t, 405, answer(t, h, httptest.NewRequest(method, "/admin/jobs/", nil), nil).Code, method)
	}
	require.Equal(t, 404, get(t, h, "/admin/jobs/index.html", nil).Code)
	// The script names the header that a write needs.
	require.Contains(t, get(t, h, "/ask.js", nil).Body.String(), `"`+admin.Header+`"`)
}

func TestWrites(t *testing.T) {
	q, waiting, running, dead := used(t)
	var log bytes.Buffer
	h := admin.NewHandler(q, admin.WithWrites(), admin.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
		admin.WithUser(func(r *http.Request) string { return r.Header.Get("X-User") }))
	var s admin.Summary
	get(t, h, "/summary", &s)
	require.True(t, s.Writable)

	var res []admin.Result
	at := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Second)
	post(t, h, "/reschedule", command(t, admin.Command{Refs: []durable.Ref{waiting}, At: at}), &res)
	require.Equal(t, []admin.Result{{Ref: string(waiting), Done: true}}, res)
	info, err := q.Get(t.Context(), waiting)
	require.NoError(t, err)
	require.True(t, at.Equal(info.Due))
	post(t, h, "/run-now", command(t, admin.Command{Refs: []durable.Ref{waiting}}), &res)
	require.True(t, res[0].Done)
	info, err = q.Get(t.Context(), waiting)
	require.NoError(t, err)
	require.False(t, info.Due.After(time.Now()))

	res = nil
	post(t, h, "/cancel", command(t, admin.Command{Refs: []durable.Ref{waiting, running, dead, "x"}}), &res)
	require.Equal(t, []bool{true, false, false, false}, []bool{res[0].Done, res[1].Done, res[2].Done, res[3].Done})
	require.Equal(t, []string{"it runs", "it is dead"}, []string{res[1].Why, res[2].Why})
	require.NotEmpty(t, res[3].Error)
	require.Contains(t, log.String(), "command=cancel")

	res = nil
	r := httptest.NewRequest("POST", "/redrive", strings.NewReader(`{"all": true, "kind": "dies"}`))
	r.Header.Set(admin.Header, "1")
	r.Header.Set("X-User", "mallory\nuser=alice")
	answer(t, h, r, &res)
	require.Equal(t, []admin.Result{{Done: true, Jobs: 1}}, res)
	require.Contains(t, log.String(), `user="mallory\nuser=alice" command=redrive`)
	require.Eventually(t, func() bool { return q.Stats().Dead == 2 }, patience, time.Millisecond)
	res = nil
	post(t, h, "/delete", command(t, admin.Command{Refs: []durable.Ref{dead}}), &res)
	require.True(t, res[0].Done)
	_, err = q.Get(t.Context(), dead)
	require.ErrorIs(t, err, durable.ErrNotFound)
	res = nil
	post(t, h, "/cancel", command(t, admin.Command{Key: "nobody's"}), &res)
	require.Equal(t, "no job that waits has the key", res[0].Why)

	require.NoError(t, q.SetSchedule(t.Context(), "s", "@every 1h", durable.Job{Kind: "runs"}))
	for _, verb := range []string{"pause", "resume", "delete"} {
		res = nil
		post(t, h, "/schedule-"+verb, `{"names": ["s"]}`, &res)
		require.Equal(t, []admin.Result{{Ref: "s", Done: true}}, res, verb)
	}
}

// The answer to a cancel of a job that has ended says how, as long as the job is kept.
func TestCancelOfWhatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := durable.Open(t.Context(), memory.New(nil).Open())
		require.NoError(t, err)
		defer q.Close()
		q.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
		refs, err := q.AddMany(t.Context(), durable.Job{Kind: "k", Retain: time.Hour}, durable.Job{Kind: "k"},
			durable.Job{Kind: "k", Retain: time.Hour, After: time.Hour})
		require.NoError(t, err)
		_, err = q.RunUntilIdle(t.Context(), 0)
		require.NoError(t, err)
		h := admin.NewHandler(q, admin.WithWrites())
		for _, want := range [][]admin.Result{
			{{Why: "it is done"}, {Why: "it has ended, or was canceled before"}, {Done: true}},
			{{Why: "it is done"}, {Why: "it has ended, or was canceled before"}, {Why: "it is canceled"}},
		} {
			for i, ref := range refs {
				want[i].Ref = string(ref)
			}
			var got []admin.Result
			post(t, h, "/cancel", command(t, admin.Command{Refs: refs}), &got)
			require.Equal(t, want, got)
		}
	})
}

// What an operator does to the flow of jobs holds, and is shown.
func TestFlow(t *testing.T) {
	q, waiting, running, _ := used(t)
	var log bytes.Buffer
	h := admin.NewHandler(q, admin.WithWrites(), admin.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	do := func(verb string, c admin.Command) admin.Result {
		t.Helper()
		var res []admin.Result
		require.Equal(t, 200, post(t, h, "/"+verb, command(t, c), &res).Code)
		require.Len(t, res, 1)
		return res[0]
	}
	var limits []admin.Limit
	require.JSONEq(t, "[]", get(t, h, "/limits", &limits).Body.String())
	hourly := durable.Limit{Kind: "runs", Running: 5, Rate: 1.0 / 3600, Burst: 1}
	require.Equal(t, admin.Result{Ref: evil, Done: true}, do("limit-set", admin.Command{Names: []string{evil}, Limit: hourly}))
	require.Contains(t, log.String(), "command=limit-set")
	require.Contains(t, log.String(), `\"rate\":0.0002777`)
	require.NotContains(t, log.String(), " error=")
	require.NotContains(t, log.String(), "lane", "what the command leaves out")
	require.NotRegexp(t, ` \w+=("")?\s`, log.String(), "no field is empty")
	require.Contains(t, do("limit-set", admin.Command{Names: []string{"n"}, Limit: durable.Limit{Running: -1}}).Error, "Running -1")
	for range 3 {
		_, err := q.Add(t.Context(), durable.Job{Kind: "runs"})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { // the first has the token
		require.NotContains(t, get(t, h, "/limits", &limits).Body.String(), "<")
		return limits[0].Taken == 1 && limits[0].Waiting == 2 && limits[0].Next != nil
	}, patience, 10*time.Millisecond)
	require.Equal(t, evil, limits[0].Name)
	require.Equal(t, hourly, limits[0].Limit)
	require.InDelta(t, 3600, time.Until(*limits[0].Next).Seconds(), 600)
	require.True(t, do("limit-delete", admin.Command{Names: []string{evil}}).Done)
	require.Contains(t, do("limit-delete", admin.Command{Names: []string{evil}}).Error, "not found")

	var pauses []durable.Pause
	require.JSONEq(t, "[]", get(t, h, "/pauses", &pauses).Body.String())
	require.Equal(t, admin.Result{Ref: `lane "l" of kind "k"`, Done: true}, do("pause", admin.Command{Kind: "k", Lane: "l"}))
	require.Equal(t, admin.Result{Ref: "the whole queue", Done: true}, do("pause", admin.Command{All: true}))
	require.True(t, do("pause", admin.Command{Kind: "ends", For: 90.5}).Done)
	require.Contains(t, do("pause", admin.Command{Kind: "ends", For: 1e300}).Error, "is not positive, or is longer than")
	require.Contains(t, do("pause", admin.Command{Kind: "ends", For: -1}).Error, "is not positive")
	require.NotContains(t, get(t, h, "/pauses", &pauses).Body.String(), `"until":"0`)
	require.Len(t, pauses, 3)
	require.Equal(t, durable.Pausable{Kind: "k", Lane: "l"}, pauses[0].Pausable)
	require.Zero(t, pauses[1].Pausable)
	require.Zero(t, pauses[1].Until)
	require.InDelta(t, 90.5, pauses[2].Until.Sub(pauses[2].Since).Seconds(), 0.001)
	require.True(t, do("resume", admin.Command{Kind: "ends"}).Done)
	require.Contains(t, do("resume", admin.Command{Kind: "k"}).Error, "not found")
	require.True(t, do("resume", admin.Command{All: true}).Done)
	pauses = nil
	get(t, h, "/pauses", &pauses)
	require.Len(t, pauses, 1)
	require.Equal(t, durable.Pausable{Kind: "k", Lane: "l"}, pauses[0].Pausable)

	require.Equal(t, admin.Result{Ref: string(waiting), Why: "it does not run"}, do("stop", admin.Command{Refs: []durable.Ref{waiting}}))
	require.True(t, do("stop", admin.Command{Refs: []durable.Ref{running}}).Done)
	for path, body := range map[string]string{
		"/pause": `{}`, "/resume": `{"all": true, "lane": "l"}`, "/limit-set": `{"names": ["n"]}`, "/limit-delete": `{}`, "/stop": `{}`,
	} {
		require.Equal(t, 400, post(t, h, path, body, nil).Code, path)
	}
}

// Only who means it writes.
func TestRefusesWrites(t *testing.T) {
	q, waiting, _, _ := used(t)
	body := command(t, admin.Command{Refs: []durable.Ref{waiting}})
	request := func(change func(*http.Request)) *http.Request {
		r := httptest.NewRequest("POST", "/cancel", strings.NewReader(body))
		r.Header.Set(admin.Header, "1")
		change(r)
		return r
	}
	writable := admin.NewHandler(q, admin.WithWrites())
	for name, c := range map[string]struct {
		h      http.Handler
		change func(*http.Request)
		status int
	}{
		"read-only":          {admin.NewHandler(q), func(*http.Request) {}, 403},
		"without the header": {writable, func(r *http.Request) { r.Header.Del(admin.Header) }, 403},
		"cross-site":         {writable, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"same-site":          {writable, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
		"by GET":             {writable, func(r *http.Request) { r.Method = "GET" }, 405},
		"preflight":          {writable, func(r *http.Request) { r.Method = "OPTIONS" }, 405},
	} {
		w := answer(t, c.h, request(c.change), nil)
		require.Equal(t, c.status, w.Code, name)
		require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"), name)
		info, err := q.Get(t.Context(), waiting)
		require.NoError(t, err, name)
		require.Equal(t, durable.Waiting, info.State, name)
	}
	for path, body := range map[string]string{
		"/cancel": `{}`, "/jobs/cancel": `{"refs": ["x"], "key": "k"}`, "/redrive": `{"all": true, "refs": ["x"]}`, "/reschedule": `{"refs": ["x"]}`, "/run-now": `[]`, "/delete": `{`,
	} {
		require.Equal(t, 400, post(t, writable, path, body, nil).Code, path)
	}
	for _, body := range []string{`{"all": true, "knd": "x"}`, `{"all": true, "meta": {"a": "b"}}`, `{"all": true} {}`, `{"all": true, "kind": "dies", "state": "dead"}`, `{"all": true, "key": "k"}`,
		`{"all": true, "names": ["n"]}`, `{"refs": ["x"], "kind": "dies"}`} {
		require.Equal(t, 400, post(t, writable, "/redrive", body, nil).Code, "a word that narrows it down is not passed over: %s", body)
	}
	var results []admin.Result
	post(t, writable, "/redrive", `{"all": true, "lane": "of nobody"}`, &results)
	require.Equal(t, []admin.Result{{Done: true}}, results)
	require.Equal(t, 400, post(t, writable, "/cancel", `{"key": "`+strings.Repeat("x", 2<<20)+`"}`, nil).Code)
	w := answer(t, writable, request(func(*http.Request) {}), nil)
	require.Equal(t, 200, w.Code)
}

// denying is an engine that lets nothing be redriven.
type denying struct {
	driver.Engine
	asked int
}

func (d *denying) Redrive(context.Context, durable.Ref, time.Time) error {
	d.asked++
	return errors.New("you may not")
}

// What fails for one job after another is not tried for all that are dead.
func TestRedriveAllDenied(t *testing.T) {
	engine := &denying{Engine: memory.New(nil).Open()}
	q, err := durable.Open(t.Context(), engine)
	require.NoError(t, err)
	q.Handle("dies", func(context.Context, *durable.Attempt) error { return durable.Discard(errors.New("no")) })
	for range 30 {
		_, err := q.Add(t.Context(), durable.Job{Kind: "dies"})
		require.NoError(t, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	require.Eventually(t, func() bool { return q.Stats().Dead == 30 }, patience, time.Millisecond)
	var res []admin.Result
	post(t, admin.NewHandler(q, admin.WithWrites()), "/redrive", `{"all": true}`, &res)
	require.Len(t, res, 1)
	require.False(t, res[0].Done)
	require.Contains(t, res[0].Error, "you may not")
	require.Equal(t, 10, engine.asked)
	stop()
	require.NoError(t, <-done)
	require.NoError(t, q.Close())
}

// ending is an engine at whose third redrive the time of the request is over.
type ending struct {
	driver.Engine
	asked int
	end   context.CancelCauseFunc
}

func (e *ending) Redrive(ctx context.Context, ref durable.Ref, at time.Time) error {
	if e.asked++; e.asked == 3 {
		e.end(errors.New("it takes a longer bound"))
		return ctx.Err()
	}
	return e.Engine.Redrive(ctx, ref, at)
}

// A redrive of all that has not the time for all says how many there were, and why it has
// ended. Another one goes on with the rest.
func TestRedriveAllInParts(t *testing.T) {
	engine := &ending{Engine: memory.New(nil).Open()}
	q, err := durable.Open(t.Context(), engine)
	require.NoError(t, err)
	q.Handle("dies", func(context.Context, *durable.Attempt) error { return durable.Discard(errors.New("no")) })
	for range 5 {
		_, err := q.Add(t.Context(), durable.Job{Kind: "dies"})
		require.NoError(t, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	require.Eventually(t, func() bool { return q.Stats().Dead == 5 }, patience, time.Millisecond)
	stop()
	require.NoError(t, <-done)
	h := admin.NewHandler(q, admin.WithWrites())
	all := func(ctx context.Context) (res []admin.Result) {
		r := httptest.NewRequest("POST", "/redrive", strings.NewReader(`{"all": true}`)).WithContext(ctx)
		r.Header.Set(admin.Header, "1")
		answer(t, h, r, &res)
		return res
	}
	bounded, end := context.WithCancelCause(t.Context())
	engine.end = end
	require.Equal(t, []admin.Result{{Jobs: 2, Error: "it takes a longer bound"}}, all(bounded))
	require.Equal(t, []admin.Result{{Jobs: 3, Done: true}}, all(t.Context()))
	require.NoError(t, q.Close())
}

// An answer that JSON cannot hold is an error that says so, and not an empty success.
func TestAnswerThatIsNoJSON(t *testing.T) {
	e := memory.New(nil).Open()
	_, errs := e.Insert(t.Context(), []driver.Record{{ID: "a", Job: driver.Job{Kind: "k", MaxAttempts: 1}, Due: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}})
	require.NoError(t, errs[0])
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	defer q.Close()
	var answer map[string]string
	w := get(t, admin.NewHandler(q), "/list", &answer)
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Contains(t, answer["error"], "cannot be written as JSON")
}
