package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/admin"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// front is a server of the page of a queue's jobs. It stands before the handler, and may
// answer in its place.
type front struct {
	*httptest.Server
	handler http.Handler

	mu      sync.Mutex
	instead map[string]http.HandlerFunc // by the last part of the path
	writes  []string                    // what was asked to be done
}

func serveAdmin(t *testing.T, h http.Handler) *front {
	f := &front{handler: h, instead: map[string]http.HandlerFunc{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *front) url() string { return f.URL + "/admin/jobs/" }

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	f.mu.Lock()
	if r.Method != http.MethodGet {
		f.writes = append(f.writes, what)
	}
	h := f.instead[what]
	f.mu.Unlock()
	if h == nil {
		h = f.handler.ServeHTTP
	}
	h(w, r)
}

// replace has h answer what is asked for, or the handler if it is nil.
func (f *front) replace(what string, h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instead[what] = h
}

func answering(v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(v)
	}
}

var writable = []admin.Option{admin.WithWrites(), admin.WithLogger(slog.New(slog.DiscardHandler))}

// newQueue returns a queue in memory, whose jobs of kind "dies" die with that error, and
// those of kind "runs" run until the test ends.
func newQueue(t *testing.T, deadly string) *durable.Queue {
	q, err := durable.Open(t.Context(), memory.New(nil).Open(), durable.WithWorkerName("front-1"), durable.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	release := make(chan bool)
	q.Handle("dies", func(context.Context, *durable.Attempt) error { return durable.Discard(errors.New(deadly)) })
	q.Handle("works", func(context.Context, *durable.Attempt) error { return nil })
	q.Handle("runs", func(context.Context, *durable.Attempt) error { <-release; return nil })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	t.Cleanup(func() {
		close(release)
		stop()
		require.NoError(t, <-done)
		require.NoError(t, q.Close())
	})
	return q
}

func add(t *testing.T, q *durable.Queue, j durable.Job) durable.Ref {
	ref, err := q.Add(t.Context(), j)
	require.NoError(t, err)
	return ref
}

// line is an expression for the row of a list whose text has all of these.
func line(list string, has ...string) string {
	text, _ := json.Marshal(has)
	return fmt.Sprintf(`[...$(%q).children].find((row) => %s.every((text) => row.textContent.includes(text)))`, list, text)
}

// openAdmin opens the page, and has it ask more often than it does for people.
func (tb *tab) openAdmin(url string) {
	tb.t.Helper()
	tb.open(url)
	tb.do(chromedp.Evaluate[chromedp.Void](`Poll.all.forEach((poll) => { poll.every = 200; })`))
}

// A program that has a queue only shows it, and an operator changes it.
func TestAdminPage(t *testing.T) {
	tb, q := newTab(t), newQueue(t, "no such customer")
	s := serveAdmin(t, admin.NewHandler(q, writable...))
	require.NoError(t, q.SetSchedule(t.Context(), "hourly", "@every 1h", durable.Job{Kind: "works"}))
	add(t, q, durable.Job{Kind: "nobody's"})
	add(t, q, durable.Job{Kind: "runs"})
	far := add(t, q, durable.Job{Kind: "works", After: time.Hour})
	first, second := add(t, q, durable.Job{Kind: "dies"}), add(t, q, durable.Job{Kind: "dies"})
	tb.openAdmin(s.url())
	tb.until(`!!` + line("jobs", string(first), "no such customer", "attempt 1 of 25"))
	tb.until(`!!` + line("workers", "front-1, ", "alive", "holds ", "runs dies, runs, works"))
	tb.until(`!!` + line("backlog", "nobody's", "1 job", "No worker that lives runs this kind."))
	tb.until(`!!` + line("schedules", "hourly", "@every 1h", "kind works"))
	require.Regexp(t, `next\s*(now|in [\d.]+.(s|min|h))\s*(\d+-\d\d-\d\d.)?\d\d:\d\d:\d\d.UTC`, tb.text("schedules"))
	tb.until(number("queue", "waiting, about") + ` === 3`) // nobody's, far, and that of the schedule
	tb.repeat(func() { add(t, q, durable.Job{Kind: "works"}) }, `parseFloat(part($("rates").children[2], "value").textContent) > 0`)
	tb.until(`/^(last|since)/.test($("quantiles").children[1].textContent) && document.querySelector("#lateness .curve").getAttribute("d").length > 10`)

	tb.press(line("jobs", string(first)) + `?.querySelector(".redrive")`)
	tb.until(`$("said").textContent.endsWith(": redriven.")`)
	require.Eventually(t, func() bool { return q.Stats().Redriven == 1 }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return q.Stats().Dead == 3 }, patience, time.Millisecond, "it has run again, and died again")

	// What destroys asks twice.
	del := line("jobs", string(second)) + `?.querySelector(".delete")`
	tb.until(pressed(del) + ` && ` + del + `.textContent === "Sure?"`)
	require.NotContains(t, s.asked(), "delete")
	tb.confirm(del)
	require.Eventually(t, func() bool { _, err := q.Get(t.Context(), second); return errors.Is(err, durable.ErrNotFound) }, patience, time.Millisecond)
	tb.until(`!` + line("jobs", string(second)))

	tb.press(line("schedules", "hourly") + `?.querySelector(".schedule-pause")`)
	tb.until(line("schedules", "hourly") + `?.textContent.includes("paused")`)
	tb.press(line("schedules", "hourly") + `?.querySelector(".schedule-resume")`)
	tb.until(`!` + line("schedules", "hourly") + `?.textContent.includes("paused")`)

	tb.press(`$("states").querySelector("[value=waiting]").parentNode`)
	tb.press(line("jobs", "nobody's") + `?.querySelector(".name")`)
	tb.until(line("jobs", "nobody's") + `?.textContent.includes('No living worker has a handler for "nobody\'s".')`)
	tb.press(line("jobs", string(far)) + `?.querySelector(".run-now")`)
	require.Eventually(t, func() bool { _, err := q.Get(t.Context(), far); return errors.Is(err, durable.ErrNotFound) }, patience, time.Millisecond)
	tb.press(`$("states").querySelector("[value=running]").parentNode`)
	tb.until(`!!` + line("jobs", "runs") + ` && $("jobs").children.length === 1`)
	require.Equal(t, []string{"redrive", "delete", "schedule-pause", "schedule-resume", "run-now"}, s.asked())
}

func (f *front) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

// All dead jobs of the kind that is listed are redriven, and no other.
func TestAdminRedrivesAll(t *testing.T) {
	tb, q := newTab(t), newQueue(t, "no")
	q.Handle("dies, too", func(context.Context, *durable.Attempt) error { return durable.Discard(errors.New("no")) })
	s := serveAdmin(t, admin.NewHandler(q, writable...))
	add(t, q, durable.Job{Kind: "dies, too"})
	for range 60 {
		add(t, q, durable.Job{Kind: "dies"})
	}
	add(t, q, durable.Job{Kind: "archived"})
	require.Eventually(t, func() bool { return q.Stats().Dead == 61 }, patience, time.Millisecond)
	tb.openAdmin(s.url())
	tb.until(`$("jobs").children.length === 50 && $("redrive-all").textContent === "Redrive all that are dead"`)
	tb.press(`$("more")`)
	tb.until(`$("jobs").children.length === 61 && $("more").hidden`)
	tb.do(chromedp.SendKeys(chromedp.CSS("#kind"), "die"))
	tb.until(`$("no-jobs").textContent === "No job is dead of kind “die”." && $("redrive-all").hidden`)
	tb.do(chromedp.SendKeys(chromedp.CSS("#kind"), "s"))
	tb.until(`$("jobs").children.length === 50 && $("redrive-all").textContent === "Redrive all of kind “dies”"`)
	tb.confirm(`$("redrive-all")`)
	tb.until(`$("said").textContent === "60 jobs redriven."`)
	require.Equal(t, int64(60), q.Stats().Redriven)
	tb.press(line("backlog", "archived") + `?.querySelector("button")`)
	tb.until(`$("jobs").children.length === 1 && $("kind").value === "archived" && !!` + line("jobs", "archived"))
}

// Without WithWrites there is no button but those that change what is shown.
func TestAdminReadOnly(t *testing.T) {
	tb, q := newTab(t), newQueue(t, "no")
	s := serveAdmin(t, admin.NewHandler(q))
	require.NoError(t, q.SetSchedule(t.Context(), "hourly", "@every 1h", durable.Job{Kind: "works"}))
	add(t, q, durable.Job{Kind: "dies"})
	require.Eventually(t, func() bool { return q.Stats().Dead == 1 }, patience, time.Millisecond)
	tb.openAdmin(s.url())
	tb.until(`!!` + line("jobs", "dies") + ` && !!` + line("schedules", "hourly"))
	require.Contains(t, tb.text("where"), "read-only")
	const buttons = `[...document.querySelectorAll("button")].filter((b) => b.checkVisibility()).map((b) => b.textContent)`
	require.Equal(t, []string{"Pause page", "dies"}, eval[[]string](tb, buttons))
	require.Empty(t, s.asked())
}

// A job's texts are whoever's who adds jobs.
func TestAdminHostileTexts(t *testing.T) {
	const evil = `</script><img src=x onerror="document.title='evil'"><b>"'&amp;`
	tb, q := newTab(t), newQueue(t, evil+"\nat line 2"+strings.Repeat("x", 400))
	s := serveAdmin(t, admin.NewHandler(q, writable...))
	long := strings.Repeat("W", 128)
	require.NoError(t, q.SetSchedule(t.Context(), evil, "CRON_TZ=Europe/Berlin 0 0 29 2 *", durable.Job{Kind: evil}))
	require.NoError(t, q.SetSchedule(t.Context(), long, "@every 1h", durable.Job{Kind: long}))
	dead := add(t, q, durable.Job{Kind: "dies", Payload: []byte(evil + long), Key: evil, Lane: long, Meta: map[string]string{evil: evil, long[:100]: long}})
	add(t, q, durable.Job{Kind: evil, Payload: []byte("\xff")})
	add(t, q, durable.Job{Kind: long})
	require.Eventually(t, func() bool { return q.Stats().Dead == 1 }, patience, time.Millisecond)
	tb.openAdmin(s.url())
	tb.press(line("jobs", string(dead)) + `?.querySelector(".name")`)
	tb.until(`!!` + line("jobs", evil, "meta "+evil, long, fmt.Sprintf("Payload, %d bytes", len(evil+long))) + ` && !!` + line("schedules", evil) + ` && !!` + line("backlog", evil))
	require.Contains(t, eval[string](tb, `document.querySelector("#jobs .error").textContent`), evil+"\nat line 2xxx")
	require.Zero(t, eval[int](tb, `document.querySelectorAll("img, #jobs script, #jobs .error *, #jobs pre *").length`))
	require.NotEqual(t, "evil", eval[string](tb, `document.title`))
	tb.fits(t)
	require.Equal(t, []int{1, 1, 1}, eval[[]int](tb, `(() => {
		const ref = document.querySelector("#jobs .ref"), text = document.createRange();
		setRef(ref, ["a", "b", "c"].map((letter) => letter.repeat(24)).join("."));
		return [...ref.childNodes].filter((node) => node.data).map((node) => (text.selectNodeContents(node), text.getClientRects().length));
	})()`), "lines of each part of a Ref between its dots")
	tb.press(line("backlog", evil) + `?.querySelector("button")`)
	tb.until(`!!` + line("jobs", evil) + ` && $("kind").value.startsWith("</script>")`)
	tb.do(chromedp.SendKeys(chromedp.CSS("#kind"), evil))
	tb.until(`$("no-jobs").textContent.includes("</script>")`)
	require.Zero(t, eval[int](tb, `document.querySelectorAll("img, #jobs script, #no-jobs *, #kinds option *").length`))
}

// fits checks that nothing is wider than the window, in windows of several widths.
func (tb *tab) fits(t *testing.T) {
	t.Helper()
	for _, width := range []int64{320, 380, 400, 420, 640, 960, 1920} {
		tb.resize(width, 800)
		tb.until(`performance.now() > 0`)
		require.Empty(t, eval[[]string](tb, `[...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1 && !e.closest("svg, .hidden")).map((e) => e.outerHTML.slice(0, 200))`), "beyond the window of %d", width)
		require.LessOrEqual(t, eval[int64](tb, `document.documentElement.scrollWidth`), width)
		require.Empty(t, eval[[]string](tb, `[...document.querySelectorAll("h1, h2, p, dd, dt, b, button, code, time, .number")].filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0).map((e) => e.outerHTML.slice(0, 200))`), "cut off at %d", width)
		require.Empty(t, eval[[]string](tb, `[...document.querySelectorAll(".aside")].filter((e) => {
			const text = document.createRange();
			text.selectNodeContents(e);
			return new Set([...text.getClientRects()].map((line) => line.top)).size > e.textContent.trim().split(/\s+/).length;
		}).map((e) => e.textContent)`), "has more lines than words at %d", width)
	}
}

// summaryOf returns a summary whose counters are n times what a second of a queue brings.
func summaryOf(start time.Time, n int64) admin.Summary {
	s := admin.Summary{
		Now: start.Add(time.Duration(n) * time.Second), Writable: true, Added: 20 * n, Attempts: 10 * n, Done: 1_000_000 * n, Failed: n / 4, ClaimAhead: 0.05,
		Waiting: 12_345_678_901, Held: 65_536, Running: 1_048_576, LeaseLost: 999_999_999, Lateness: make([]int64, 28),
		Kinds: []admin.Overdue{{Kind: "mail", Jobs: 9_876_543_210, Due: start.Add(-1000 * time.Hour), Age: 3_600_000 + float64(n), Handled: true}, {Kind: "few", Jobs: 1, Due: start, Age: float64(n)}},
	}
	s.Lateness[10], s.Lateness[20] = 9*n, n
	return s
}

// The curves are made of the counters, whatever they are. Where these fall, another process
// answers, and the curves are broken.
func TestAdminCurves(t *testing.T) {
	tb, q := newTab(t), newQueue(t, "no")
	s := serveAdmin(t, admin.NewHandler(q))
	start, second := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC), int64(0)
	var mu sync.Mutex
	s.replace("summary", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		second += 2
		answering(summaryOf(start, second))(w, r)
	})
	tb.openAdmin(s.url())
	tb.until(`samples.length >= 5`)
	rates := func() []string {
		return eval[[]string](tb, `[...document.querySelectorAll("#rates .value")].map((e) => e.textContent.replace("\u00a0", " "))`)
	}
	require.Equal(t, []string{"20 /s", "10 /s", "1,000,000 /s"}, rates()[:3])
	require.Equal(t, "0 /s", rates()[4])
	require.Equal(t, 1, eval[int](tb, `document.querySelector("#rates .curve").getAttribute("d").split("M").length - 1`))
	require.Equal(t, []string{"1.0 ms", "1.0 s"}, strings.Split(eval[string](tb, `[samples.at(-1).p50, samples.at(-1).p99].map((v) => v.toPrecision(2)).map((v) => v === "0.0010" ? "1.0 ms" : v + " s").join()`), ","))
	require.Regexp(t, `since the start\s+1.ms\s+1.s\s`, tb.text("quantiles"))
	require.Equal(t, []string{"12.3B", "9.88B", "42 d", "1"}, eval[[]string](tb, `[...$("queue").querySelectorAll("dd")].map((e) => e.textContent.replace("\u00a0", " "))`))
	require.Regexp(t, `^\d\d:\d\d:\d\d UTC$`, strings.ReplaceAll(eval[string](tb, line("backlog", "few")+`?.querySelector("time").textContent`), "\u00a0", " "))
	require.Regexp(t, `^2029-11-21 20:00:00 UTC$`, strings.ReplaceAll(eval[string](tb, line("backlog", "mail")+`?.querySelector("time").textContent`), "\u00a0", " "))
	tb.fits(t)

	mu.Lock()
	start, second = start.Add(time.Duration(second)*time.Second), 1
	mu.Unlock()
	tb.until(`samples.some((s, i) => i > 0 && s.broken) && !!samples.at(-1).rates && document.querySelector("#rates .curve").getAttribute("d").split("M").length - 1 === 2`)
	tb.until(`!samples.at(-1).broken && !samples.at(-2).broken`)
	require.Equal(t, []string{"20 /s", "10 /s", "1,000,000 /s"}, rates()[:3])
	require.NotContains(t, eval[string](tb, `document.body.innerHTML`), "NaN")
}

// The page says what does not answer, and of when its figures are. It gets on by itself.
func TestAdminUnreachable(t *testing.T) {
	tb, q := newTab(t), newQueue(t, "no")
	tb.mayComplain = true
	s := serveAdmin(t, admin.NewHandler(q, writable...))
	ref := add(t, q, durable.Job{Kind: "dies"})
	tb.openAdmin(s.url())
	tb.until(`!!` + line("jobs", string(ref)))
	broken := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"error": "the engine <b>does not</b> answer"}`)
	}
	for _, what := range []string{"summary", "list", "workers", "schedules", "redrive"} {
		s.replace(what, broken)
	}
	tb.until(`$("note").textContent.startsWith("The queue does not answer: the engine")`)
	require.Regexp(t, `^The queue does not answer: the engine <b>does not</b> answer\. What the page shows is of (\d+-\d\d-\d\d.)?\d\d:\d\d:\d\d.UTC\.$`, tb.text("note"))
	tb.until(`$("main").classList.contains("stale") && $("no-jobs").textContent.includes("cannot be read")`)
	tb.press(line("jobs", string(ref)) + `?.querySelector(".redrive")`)
	tb.until(`$("said").textContent === "Not redriven: the engine <b>does not</b> answer"`)
	require.Zero(t, q.Stats().Redriven)

	stuck := make(chan bool)
	s.replace("summary", func(http.ResponseWriter, *http.Request) { <-stuck })
	tb.until(`$("note").textContent.startsWith("The queue has not answered for some seconds") || $("note").textContent.startsWith("The queue does not answer")`)
	close(stuck)
	login := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>log in") }
	s.replace("summary", login)
	tb.until(`$("note").textContent.includes("perhaps you have to log in again")`)
	for _, what := range []string{"summary", "list", "workers", "schedules", "redrive"} {
		s.replace(what, nil)
	}
	tb.until(`!$("note").checkVisibility() && $("connection").textContent === "live" && $("workers-count").textContent === "1 alive" && $("no-jobs").hidden`)
	half := summaryOf(time.Now(), 1)
	half.Kinds, half.BacklogError = []admin.Overdue{}, "the disk <b>burns</b>"
	s.replace("summary", answering(half))
	tb.until(`$("note").textContent === "What waits cannot be read: the disk <b>burns</b>"`)
	require.Regexp(t, `waiting, about\s*–`, tb.text("queue"))
	s.replace("summary", nil)
	require.NoError(t, q.Close())
	tb.until(`$("note").textContent.includes("closed")`)
	s.Close()
	tb.until(`$("note").textContent.startsWith("The queue does not answer: the server cannot be reached.")`)
}

// One slow answer does not delay the next request. Two do.
func TestAdminAfterASlowAnswer(t *testing.T) {
	tb := newTab(t)
	tb.open(serveAdmin(t, admin.NewHandler(newQueue(t, ""))).url())
	pauses := eval[[]float64](tb, `(() => {
		const p = new Poll(() => "", 2000, () => {}, () => {});
		Poll.all.pop();
		return [40e3, 5, 40e3, 30e3, 5].map((took) => p.pause(took));
	})()`)
	require.Equal(t, []float64{2000, 2000, 2000, 300e3, 2000}, pauses)
}

// What is paused and limited is shown, where jobs wait for it, too, and is lifted.
func TestAdminFlow(t *testing.T) {
	const evil = `<img src=x onerror="document.title='evil'">`
	tb, q := newTab(t), newQueue(t, "no")
	s := serveAdmin(t, admin.NewHandler(q, writable...))
	require.NoError(t, q.Pause(t.Context(), durable.Pausable{Kind: "works"}))
	require.NoError(t, q.Pause(t.Context(), durable.Pausable{Kind: evil, Lane: "customer 7"}))
	require.NoError(t, q.PauseFor(t.Context(), durable.Pausable{Lane: "ends"}, 90*time.Minute))
	require.NoError(t, q.SetLimit(t.Context(), evil, durable.Limit{Kind: "runs", PerLane: true, Running: 1, Rate: 2.5, Burst: 10}))
	for range 3 {
		add(t, q, durable.Job{Kind: "works"})
		add(t, q, durable.Job{Kind: "runs", Lane: "l"})
	}
	tb.openAdmin(s.url())
	tb.until(`!!` + line("limits", evil, "kind runs, each lane", "at most 1 at once · 2.5\u00a0/s in bursts of 10", "1 running in 1 lane · 2 wait here"))
	tb.until(line("backlog", "works") + `?.querySelector(".state").textContent === "Paused."`)
	tb.until(`!!` + line("pauses", "lane “customer 7” of kind “"+evil))
	tb.until(`!!` + line("pauses", "lane “ends”", "goes on"))
	require.Zero(t, eval[int](tb, `document.images.length`))
	tb.fits(t)

	tb.press(line("pauses", "kind “works”") + `?.querySelector("button")`)
	require.Eventually(t, func() bool { return q.Stats().Done == 3 }, patience, time.Millisecond)
	tb.confirm(line("limits", evil) + `?.querySelector("button")`)
	tb.until(`$("limits").children.length === 0`)
	tb.confirm(`$("pause-all")`)
	tb.until(`$("note").textContent.startsWith("The whole queue is paused") && $("pause-all").hidden`)
	paused, err := q.Paused(t.Context())
	require.NoError(t, err)
	require.Len(t, paused, 3)
	for i, want := range []durable.Pausable{{Kind: evil, Lane: "customer 7"}, {Lane: "ends"}, {}} {
		require.Equal(t, want, paused[i].Pausable)
	}
	tb.press(line("pauses", "the whole queue") + `?.querySelector("button")`)
	tb.until(`$("note").hidden`)

	tb.press(`$("states").querySelector("[value=running]").parentNode`)
	tb.confirm(line("jobs", "runs") + `?.querySelector(".stop")`)
	tb.until(`$("said").textContent.endsWith(": asked to end.")`)
	require.Equal(t, []string{"resume", "limit-delete", "pause", "resume", "stop"}, s.asked())
}

// The queue of a new program is empty, and nobody runs it.
func TestAdminEmpty(t *testing.T) {
	tb := newTab(t)
	q, err := durable.Open(t.Context(), memory.New(nil).Open())
	require.NoError(t, err)
	s := serveAdmin(t, admin.NewHandler(q))
	tb.openAdmin(s.url())
	tb.until(`samples.length >= 3 && [...document.querySelectorAll(".empty")].filter((e) => e.checkVisibility()).length === 5`)
	shown := eval[[]string](tb, `[...document.querySelectorAll(".empty")].filter((e) => e.checkVisibility()).map((e) => e.textContent)`)
	require.Equal(t, []string{"No job is due and waits.", "No worker lives. Nobody runs the jobs of this queue.", "There is no schedule.", "There is no limit, and nothing is paused."}, shown[:4])
	require.Equal(t, "No job is dead.", shown[len(shown)-1])
	tb.fits(t)
	tb.press(`$("hold")`)
	require.Equal(t, "paused", tb.text("connection"))
	before := eval[int](tb, `samples.length`)
	time.Sleep(time.Second)
	require.Equal(t, before, eval[int](tb, `samples.length`))
	tb.press(`$("hold")`)
	tb.until(fmt.Sprintf(`$("connection").textContent === "live" && samples.length > %d`, before))
	require.NoError(t, q.Close())
}

// The page has the colors of that of package debug, which TestLightAndDark looks at.
func TestAdminColors(t *testing.T) {
	tb, q := newTab(t), newQueue(t, "no")
	s := serveAdmin(t, admin.NewHandler(q))
	colors := func(file string) map[string][]string {
		text, err := os.ReadFile("../../" + file)
		require.NoError(t, err)
		found := map[string][]string{}
		for _, c := range regexp.MustCompile(`(--[a-z0-9]+): (#[0-9a-f]+);`).FindAllStringSubmatch(string(text), -1) {
			found[c[1]] = append(found[c[1]], c[2])
		}
		return found
	}
	debug := colors("timingwheel/debug/page.css")
	for name, values := range colors("durable/admin/page/page.css") {
		require.Equal(t, debug[name], values, name)
	}
	tb.contrasts(func() { tb.openAdmin(s.url()) }, []contrasts{
		{"--ink --faint --bad", "--ground --plate --track", 4.5},
		{"--good --hand", "--plate", 4.5},
	})
}
