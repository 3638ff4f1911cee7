package debug

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// ask returns what the handler answers to a request, without a network.
func ask(h http.Handler, method, target, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

func get(h http.Handler, target string) *httptest.ResponseRecorder {
	return ask(h, http.MethodGet, target, "*/*")
}

func TestForms(t *testing.T) {
	h := NewHandler()
	h.add("a", newFake())
	const firefox = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for _, test := range []struct {
		query, accept string
		status        int
		contentType   string
	}{
		{"", firefox, 200, "text/html; charset=utf-8"},
		{"", "*/*", 200, "text/plain; charset=utf-8"}, // curl
		{"", "", 200, "text/plain; charset=utf-8"},
		{"", "application/json", 200, "application/json"},
		{"?format=json", firefox, 200, "application/json"},
		{"?format=text", firefox, 200, "text/plain; charset=utf-8"},
		{"?format=html", "*/*", 200, "text/html; charset=utf-8"},
		{"?format=profile", firefox, 200, "application/octet-stream"},
		{"?format=profile&wheel=b", firefox, 404, "text/plain; charset=utf-8"},
		{"?format=events", firefox, 200, "text/event-stream"},
		{"", "text/event-stream", 200, "text/event-stream"},
		{"?format=xml", firefox, 400, "text/plain; charset=utf-8"},
		{"?file=page.css", "text/css", 200, "text/css; charset=utf-8"},
		{"?file=page.js", "*/*", 200, "text/javascript; charset=utf-8"},
		{"?file=icon.svg", "image/*", 200, "image/svg+xml"},
		{"?file=../handler.go", "*/*", 404, "text/plain; charset=utf-8"},
		{"?file=page.css/", "*/*", 404, "text/plain; charset=utf-8"},
		{"?format=text&wheel=b", "*/*", 404, "text/plain; charset=utf-8"},
		{"?format=json&wheel=b", "*/*", 404, "text/plain; charset=utf-8"},
		{"?wheel=b", firefox, 200, "text/html; charset=utf-8"}, // the page itself says so
	} {
		// For the stream only HEAD, which ends.
		for _, method := range []string{http.MethodHead, http.MethodGet} {
			if strings.Contains(test.contentType, "event") && method == http.MethodGet {
				continue
			}
			rec := ask(h, method, "/"+test.query, test.accept)
			require.Equal(t, test.status, rec.Code, "%+v", test)
			require.Equal(t, test.contentType, rec.Header().Get("Content-Type"), "%+v", test)
			require.Equal(t, "Accept", rec.Header().Get("Vary"))
		}
	}
}

func TestOnlyGet(t *testing.T) {
	h := NewHandler()
	f := newFake()
	h.add("a", f)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "get"} {
		for _, query := range []string{"", "?format=json", "?format=events", "?file=page.js"} {
			rec := ask(h, method, "/"+query, "")
			require.Equal(t, http.StatusMethodNotAllowed, rec.Code, method)
			require.Equal(t, "GET, HEAD", rec.Header().Get("Allow"))
		}
	}
	for _, query := range []string{"", "?format=html", "?format=json", "?format=text", "?format=events", "?file=page.js"} {
		rec := ask(h, http.MethodHead, "/"+query, "")
		require.Equal(t, http.StatusOK, rec.Code)
		require.Zero(t, rec.Body.Len())
	}
	require.Zero(t, f.asked.Load()+f.snapshots.Load(), "nobody asked for figures")
}

func TestHeaders(t *testing.T) {
	h := NewHandler()
	for _, query := range []string{"", "?format=html", "?format=json", "?format=nonsense", "?file=page.js", "?file=nonsense"} {
		header := get(h, "/"+query).Header()
		require.Contains(t, header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self';")
		require.NotContains(t, header.Get("Content-Security-Policy"), "unsafe")
		require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-store", header.Get("Cache-Control"))
		require.Equal(t, "same-origin", header.Get("Cross-Origin-Resource-Policy"))
		require.Empty(t, header.Get("Access-Control-Allow-Origin"))
	}
}

// All that the page refers to is found, wherever the handler is mounted.
func TestMounted(t *testing.T) {
	h := NewHandler()
	h.add("a", newFake())
	mux := http.NewServeMux()
	mux.Handle("/debug/timingwheel/", h)
	mux.Handle("/bare", h)
	mux.Handle("/admin/wheels/", http.StripPrefix("/admin/wheels/", h))
	mux.Handle("/stripped", http.StripPrefix("/stripped", h))
	server := httptest.NewServer(mux)
	defer server.Close()
	reference := regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	for _, path := range []string{"/debug/timingwheel/", "/debug/timingwheel", "/bare", "/admin/wheels/", "/admin/wheels", "/stripped"} {
		r, err := http.NewRequest(http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		r.Header.Set("Accept", "text/html")
		resp, err := server.Client().Do(r)
		require.NoError(t, err)
		page, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		require.NoError(t, err)
		require.Contains(t, string(page), "<h1>Timing wheels</h1>", path)
		found := reference.FindAllStringSubmatch(string(page), -1)
		require.Len(t, found, 12)
		for _, match := range found {
			ref, err := url.Parse(strings.ReplaceAll(match[1], "&amp;", "&"))
			require.NoError(t, err)
			asset, err := server.Client().Get(resp.Request.URL.ResolveReference(ref).String())
			require.NoError(t, err)
			asset.Body.Close()
			require.Equal(t, http.StatusOK, asset.StatusCode, "%s %s", path, match[1])
		}
	}
}

// The page needs no other host, and nothing that would need an exception in the policy.
func TestPageIsAlone(t *testing.T) {
	for name := range fileTypes {
		content, err := files.ReadFile(name)
		require.NoError(t, err)
		text := strings.ReplaceAll(string(content), "http://www.w3.org/2000/svg", "")
		require.NotRegexp(t, `https?:|//[a-z]+\.|@import|url\(`, text, name)
		require.NotRegexp(t, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(| style="| on[a-z]+="`, text, name)
	}
}

func TestJSON(t *testing.T) {
	h := NewHandler()
	a, b := newFake(), newFake()
	b.snapshot.Next = []time.Time{time.Now().Round(0)}
	h.add("a", a)
	h.add("b", b)
	type form struct {
		Wheels []struct {
			Name     string
			Stats    timingwheel.Stats
			Snapshot timingwheel.Snapshot
		}
	}
	var all, one form
	require.NoError(t, json.Unmarshal(get(h, "/?format=json").Body.Bytes(), &all))
	require.Len(t, all.Wheels, 2)
	require.Equal(t, "a", all.Wheels[0].Name)
	require.Equal(t, a.stats, all.Wheels[0].Stats)
	require.Equal(t, a.snapshot, all.Wheels[0].Snapshot)
	require.NoError(t, json.Unmarshal(get(h, "/?format=json&wheel=b").Body.Bytes(), &one))
	require.Len(t, one.Wheels, 1)
	require.Equal(t, "b", one.Wheels[0].Name)
	require.True(t, b.snapshot.Next[0].Equal(one.Wheels[0].Snapshot.Next[0]))
	require.Equal(t, `{"wheels":[],"pools":[],"purgatories":[]}`+"\n", get(NewHandler(), "/?format=json").Body.String())
}

func TestAddAndRemove(t *testing.T) {
	h := NewHandler()
	require.Equal(t, "no wheels\n", get(h, "/").Body.String())
	f := newFake()
	f.stats.Pending = 77
	h.add("a", newFake())
	h.add("b", newFake())
	h.add("a", f)
	names := func() (names []string) {
		wheels := h.list().wheels
		for _, w := range wheels {
			names = append(names, w.name)
		}
		return names
	}
	require.Equal(t, []string{"a", "b"}, names())
	require.Contains(t, get(h, "/?wheel=a").Body.String(), "77 pending")
	h.Remove("c")
	h.Remove("a")
	require.Equal(t, []string{"b"}, names())
	require.PanicsWithValue(t, "debug: Add: nil wheel", func() { h.Add("a", nil) })
	require.PanicsWithValue(t, "debug: Add: empty name", func() { h.add("", f) })
}

// Names that differ only in bytes that are not valid UTF-8 are shown as different names. Each can
// be requested as it was added and as it is shown.
func TestInvalidNames(t *testing.T) {
	h := NewHandler()
	names := []string{"a\xffz", "a\xfez", "\xed\xa0\x80", "a\ufffdz"}
	for i, name := range names {
		f := newFake()
		f.stats.Pending = int64(100 + i)
		h.add(name, f)
	}
	var form struct{ Wheels []sample }
	require.NoError(t, json.Unmarshal(get(h, "/?format=json").Body.Bytes(), &form))
	shown := form.Wheels
	require.Len(t, shown, len(names))
	for i, name := range names {
		require.Equal(t, []string{`a\xffz`, `a\xfez`, `\xed\xa0\x80`, "a\ufffdz"}[i], shown[i].Name)
		for _, asked := range []string{name, shown[i].Name} {
			rec := get(h, "/?format=text&wheel="+url.QueryEscape(asked))
			require.Equal(t, http.StatusOK, rec.Code)
			require.Contains(t, rec.Body.String(), fmt.Sprint(100+i, " pending"))
			require.Contains(t, string(h.event(validName(asked))), fmt.Sprintf(`"Pending":%d`, 100+i))
		}
	}
	h.Remove(names[0])
	require.Len(t, h.wheels, 3)
	h.Remove(`a\xfez`)
	require.Len(t, h.wheels, 2)
}

func TestRealWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithManualDrive())
		h := NewHandler()
		h.interval = 0 // each request sees the wheel as it is
		h.Add("real", w)
		for _, d := range []time.Duration{time.Minute, time.Hour, time.Hour} {
			_, err := w.Schedule(d, func() {})
			require.NoError(t, err)
		}
		require.Regexp(t, `(?s)^"real": 3 pending, made .*next: 1 in 1m0s, 2 in 1h0m0s\n`, get(h, "/").Body.String())
		require.Len(t, w.Stop(), 3)
		h.Remove("real")
		h.Add("real", w)
		require.Regexp(t, `(?s)^"real": 0 pending, stopped, .*lateness since the start: nothing has expired\n.*next: none\n`, get(h, "/").Body.String())
	})
}

func TestRegistersNothing(t *testing.T) {
	_, pattern := http.DefaultServeMux.Handler(httptest.NewRequest(http.MethodGet, "/debug/timingwheel/", nil))
	require.Empty(t, pattern)
}

// All forms at the same time, for the race detector.
func TestAtOnce(t *testing.T) {
	p := pool.New(2, 10, pool.Wait)
	w := timingwheel.New(timingwheel.WithExecutor(p))
	defer w.Stop()
	parked := purgatory.New[int](w)
	h := NewHandler()
	h.interval = time.Millisecond
	server := httptest.NewServer(h)
	defer server.Close()
	var all sync.WaitGroup
	for _, query := range []string{"?format=json", "?format=text", "?format=events"} {
		for range 4 {
			all.Go(func() {
				for range 20 {
					resp, err := http.Get(server.URL + "/" + query)
					if err != nil {
						t.Error(err)
						return
					}
					io.CopyN(io.Discard, resp.Body, 300)
					resp.Body.Close()
				}
			})
		}
	}
	all.Go(func() {
		for range 200 {
			h.Add("w", w)
			w.Schedule(time.Millisecond, func() {})
			h.Remove("w")
			h.Add("v", w)
			h.AddPool("p", p)
			h.RemovePool("p")
			h.AddPool("q", p)
			h.AddPurgatory("p", parked)
			parked.Park(time.Millisecond, nil, nil, 1)
			h.RemovePurgatory("p")
			h.AddPurgatory("q", parked)
		}
	})
	all.Wait()
}
