package page

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/debug"
)

const path = "/debug/timingwheel/"

// site is a server of the page of two wheels. It counts who listens to the stream.
type site struct {
	*httptest.Server
	page      *debug.Handler
	requests  *timingwheel.TimingWheel
	listeners atomic.Int64
}

// serve starts a site with wheels that are busy until the test ends, at the address, or
// any if that is empty.
func serve(t *testing.T, addr string) *site {
	s := &site{page: debug.NewHandler(), requests: newBusy(t)}
	s.page.Add("requests", s.requests)
	s.page.Add("sessions", newBusy(t, timingwheel.WithTick(10*time.Millisecond), timingwheel.WithWheelSize(64)))
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.RawQuery, "format=events") {
			s.listeners.Add(1)
			defer s.listeners.Add(-1)
		}
		mux := http.NewServeMux()
		mux.Handle(path, s.page)
		mux.ServeHTTP(rw, r)
	}))
	if addr != "" {
		s.Listener.Close()
		// Another program may have a connection from that port for a while.
		require.Eventually(t, func() (ok bool) {
			listener, err := net.Listen("tcp", addr)
			if err == nil {
				s.Listener = listener
			}
			return err == nil
		}, patience, time.Millisecond)
	}
	s.Start()
	t.Cleanup(s.close)
	return s
}

func (s *site) url() string { return s.URL + path }

// close ends the streams too, which do not end by themselves.
func (s *site) close() {
	s.CloseClientConnections()
	s.Close()
}

// newBusy returns a wheel with tasks on three levels and more coming.
func newBusy(t *testing.T, opts ...timingwheel.Option) *timingwheel.TimingWheel {
	w := timingwheel.New(opts...)
	for range 2000 {
		w.Schedule(rand.N(20*time.Hour), func() {})
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan bool)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for range 10 {
				w.Schedule(rand.N(2*time.Second), func() {})
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		w.Stop()
	})
	return w
}

func TestPage(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	tb.open(s.url())
	require.Equal(t, "requests", tb.text("name"))
	require.Regexp(t, `^made \d.* ago · tick 1.ms · \d+ shards?$`, tb.text("facts"))
	require.Equal(t, 3, eval[int](tb, `document.querySelectorAll("#dial .ring").length`))
	require.Equal(t, 3, eval[int](tb, `document.querySelectorAll("#dial .hand").length`))
	require.Equal(t, 3*256, eval[int](tb, `document.querySelectorAll("#dial .slot").length`))
	require.Equal(t, 3, eval[int](tb, `document.querySelectorAll("#levels tr").length`))
	require.Greater(t, eval[int](tb, `document.querySelectorAll("#dial .slot[d]").length`), 100)

	hand := `document.querySelector("#dial .hand").parentNode.getAttribute("transform")`
	tb.until(hand + ` !== null`) // a frame draws it
	before := eval[string](tb, hand)
	require.Regexp(t, `^rotate\(\d`, before)
	tb.until(hand + fmt.Sprintf(` !== %q`, before))
	tb.until(`document.querySelector("#dial .spark")` + ` !== null`)
	tb.rises("accounts", "expired")
	require.LessOrEqual(t, tb.term("accounts", "expired"), float64(s.requests.Stats().Expired))
	tb.until(number("rates", "expired /s") + ` > 0`)
	tb.until(number("rates", "scheduled /s") + ` > 0`)
	tb.until(`document.querySelector("#pending .curve").getAttribute("d").split("L").length > 5`)
	require.Equal(t, 2*28, eval[int](tb, `document.querySelectorAll("#lateness .bar").length`))
	require.Positive(t, eval[int](tb, `document.querySelectorAll("#next li").length`))
}

// The drawing shows what is in the wheel.
func TestSlotsAreTheWheels(t *testing.T) {
	tb := newTab(t)
	// With ticks so long, the test is over before the first one.
	w := timingwheel.New(timingwheel.WithTick(time.Hour), timingwheel.WithWheelSize(64), timingwheel.WithShards(1))
	defer w.Stop()
	w.Schedule(1800*time.Hour, func() {})
	h := debug.NewHandler()
	h.Add("still", w)
	tb.open(serveHandler(t, h)) // with an empty ring
	for _, d := range []time.Duration{30 * time.Hour, 30 * time.Hour, 45 * time.Hour} {
		w.Schedule(d, func() {})
	}
	tb.until(`document.querySelector(".total")?.textContent === "4"`)
	time.Sleep(time.Second)
	require.NotContains(t, eval[string](tb, `document.querySelector("#dial").innerHTML`), "NaN")
	filled := `[...document.querySelectorAll("#dial .ring")].map((r) => [...r.querySelectorAll(".slot")].flatMap((s, i) => s.hasAttribute("d") ? [i] : []))`
	require.Equal(t, [][]int{{30, 45}, {28}}, withoutRounding(eval[[][]int](tb, filled)))
	w.Stop()
	tb.until(`document.querySelector(".total-name")?.textContent === "stopped"`)
	require.Contains(t, tb.text("facts"), "stopped")
	tb.until(`$("wheels").textContent === "stillstopped"`) // the list is older than the sample
	h.Remove("still")
	tb.until(`!document.querySelector("#note").hidden`)
	require.Contains(t, tb.text("note"), "No wheel")
	require.False(t, eval[bool](tb, `$("wheel").checkVisibility()`), "no figures of a wheel that is gone")
}

// withoutRounding moves the slots of the finest ring back by one, since deadlines round
// up to a tick.
func withoutRounding(rings [][]int) [][]int {
	for i := range rings[0] {
		rings[0][i]--
	}
	return rings
}

func TestSeveralWheels(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	tb.open(s.url())
	require.Regexp(t, `^requests\s+[\d.K]+\s+sessions\s+[\d.K]+$`, tb.text("wheels"))
	tb.press(`document.querySelector("#wheels li:nth-child(2) a")`)
	tb.until(`document.querySelector("#name").textContent === "sessions"`)
	require.Equal(t, "?wheel=sessions", eval[string](tb, `location.search`))
	require.Equal(t, "sessions", eval[string](tb, `document.querySelector("[aria-current] b").textContent`))
	require.Contains(t, tb.text("facts"), "tick 10\u00a0ms")
	require.Equal(t, 64, eval[int](tb, `document.querySelectorAll("#dial .ring:first-child .slot").length`))
	tb.do(chromedp.Reload())
	tb.until(`document.querySelector("#name").textContent === "sessions"`)
	tb.do(chromedp.NavigateBack())
	tb.until(`document.querySelector("#name").textContent === "requests"`)
	require.Equal(t, path, eval[string](tb, `location.pathname + location.search`))

	tb.open(s.url() + "?wheel=nobody")
	tb.until(`!document.querySelector("#note").hidden`)
	require.Contains(t, tb.text("note"), "no wheel named “nobody”")
}

func TestKeyboard(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	tb.open(s.url())
	var reached []string
	for range 6 {
		tb.do(chromedp.KeyEvent(kb.Tab))
		reached = append(reached, eval[string](tb, `document.activeElement.dataset.name ?? (document.activeElement.id || document.activeElement.getAttribute("role") || "")`))
		if document := eval[bool](tb, `document.activeElement === document.body`); !document {
			require.NotEqual(t, "none", eval[string](tb, `getComputedStyle(document.activeElement).outlineStyle`), "focus can be seen")
		}
	}
	require.Equal(t, []string{"requests", "sessions", "pause", "as-text", "as-json"}, reached[:5])

	tb.do(chromedp.Focus(chromedp.CSS(`#wheels li:nth-child(2) a`)))
	tb.do(chromedp.KeyEvent(kb.Enter))
	tb.until(`document.querySelector("#name").textContent === "sessions"`)
	tb.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(" "))
	require.Equal(t, "Resume", tb.text("pause"))
	require.Equal(t, "paused", tb.text("connection"))
	require.Eventually(t, func() bool { return s.listeners.Load() == 0 }, patience, time.Millisecond)
	before := tb.text("accounts")
	time.Sleep(time.Second)
	require.Equal(t, before, tb.text("accounts"))
	tb.do(chromedp.KeyEvent(kb.Enter))
	tb.until(`document.querySelector("#connection").textContent === "live"`)
	require.Equal(t, int64(1), s.listeners.Load())
}

// What a screen reader finds.
func TestAccessibleNames(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	require.Eventually(t, func() bool { return s.requests.Stats().Expired > 0 }, patience, time.Millisecond)
	tb.open(s.url())
	tree, err := chromedp.Call(tb.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	require.NoError(t, err)
	found := map[string][]string{}
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		var role, name string
		require.NoError(t, json.Unmarshal(node.Role.Value, &role))
		if node.Name != nil {
			require.NoError(t, json.Unmarshal(node.Name.Value, &name))
		}
		found[role] = append(found[role], name)
	}
	require.Equal(t, []string{"Wheels"}, found["navigation"])
	require.Equal(t, []string{"requests", "Rates", "Now", "Pending", "Lateness", "Next deadlines", "Levels", "Since the start"}, found["heading"][1:])
	require.Len(t, found["main"], 1)
	require.Len(t, found["banner"], 1)
	require.Len(t, found["contentinfo"], 1)
	require.Len(t, found["status"], 1)
	require.Equal(t, []string{"Pause"}, found["button"])
	require.Len(t, found["columnheader"], 4+7)
	require.Len(t, found["rowheader"], 2+3)
	require.Len(t, found["image"], 3)
	require.Regexp(t, `^requests: [\d,]+ pending, on 3 rings, from the finest\. slots of 1.ms: [\d,]+ entries in [\d,]+ buckets, hand at slot \d+ of 512; `, found["image"][0])
	require.Regexp(t, `^Pending in the last 1.min: from `, found["image"][1])
	require.Regexp(t, `^Lateness\. In the last .*: .*\. Since the start: [\d,]+ expired, half at most .* late, 99 percent at most .*, all at most .*\.$`, found["image"][2])
	for _, role := range []string{"link", "button", "image", "region", "heading"} {
		require.NotContains(t, found[role], "", role)
	}
	for _, text := range found["StaticText"] {
		require.NotContains(t, text, "One level of the wheel", "what explains a drawing is of no use without it")
	}
	require.Equal(t, 1, eval[int](tb, `document.querySelectorAll("[aria-live], [role=status], [role=alert], [role=log]").length`), "nothing chatters")
}

// contrast is a function for the page: the contrast between two of its colours.
const contrast = `(a, b) => {
	const luminance = (name) => {
		const probe = document.body.appendChild(document.createElement("i"));
		probe.style.color = "var(" + name + ")";
		const rgb = getComputedStyle(probe).color.match(/\d+/g).slice(0, 3).map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
		probe.remove();
		return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];
	};
	const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
	return (high + 0.05) / (low + 0.05);
}`

func TestLightAndDark(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	tb.contrasts(func() { tb.open(s.url()) }, []contrasts{
		{"--ink --faint --bad", "--ground --plate", 4.5},
		{"--s1 --s2 --s3 --s4 --s5 --s6 --s7 --s8 --hand", "--track", 3.0},
		{"--hand", "--plate", 4.5}, // names of marks
	})
}

// contrasts says how much each of the inks must stand out from each of the grounds.
type contrasts struct {
	inks, grounds string
	least         float64
}

// contrasts opens the page in both schemes, which must differ, and checks its contrasts.
func (tb *tab) contrasts(open func(), want []contrasts) {
	tb.t.Helper()
	bodies := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		tb.media("prefers-color-scheme:" + scheme)
		open()
		bodies[eval[string](tb, `getComputedStyle(document.body).backgroundColor`)] = true
		for _, c := range want {
			for ground := range strings.FieldsSeq(c.grounds) {
				for ink := range strings.FieldsSeq(c.inks) {
					require.GreaterOrEqual(tb.t, eval[float64](tb, fmt.Sprintf(`(%s)(%q, %q)`, contrast, ink, ground)), c.least, "%s %s on %s", scheme, ink, ground)
				}
			}
		}
	}
	require.Len(tb.t, bodies, 2)
}

func TestReducedMotion(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	tb.media("prefers-reduced-motion:reduce")
	tb.open(s.url())
	require.True(t, eval[bool](tb, `(() => {
		window.seen = { events: 0, sparks: 0, hands: new Set() };
		const original = receive;
		receive = (...event) => { seen.events++; original(...event); };
		new MutationObserver(() => {
			seen.sparks += document.querySelectorAll("#dial .spark").length;
			seen.hands.add(document.querySelector("#dial .hand").parentNode.getAttribute("transform"));
		}).observe($("dial"), { subtree: true, childList: true, attributes: true });
		return true;
	})()`))
	tb.rises("accounts", "expired")
	tb.until(`seen.events >= 6 && seen.hands.size > 1`)
	seen := eval[[]int](tb, `[seen.sparks, seen.hands.size, seen.events]`)
	require.Zero(t, seen[0])
	require.LessOrEqual(t, seen[1], 1+seen[2], "it moves with the events only")
}

// 320 pixels are a screen of 1280 at 400 %.
func TestNarrow(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	for _, width := range []int64{320, 360, 640, 960, 1920} {
		tb.resize(width, 800)
		tb.open(s.url())
		require.LessOrEqual(t, eval[int64](tb, `document.documentElement.scrollWidth`), width)
		require.Greater(t, eval[float64](tb, `document.querySelector("#dial").getBoundingClientRect().width`), 200.0)
		require.Empty(t, eval[[]string](tb, `[...document.querySelectorAll("h1, h2, p, dd, dt, a, button")].filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0).map((e) => e.textContent)`), "cut off at %d", width)
	}
}

// Wheels of all shapes can be drawn.
func TestShapes(t *testing.T) {
	tb := newTab(t)
	h := debug.NewHandler()
	names := []string{"two slots", "65536 slots", "empty", "a microsecond"}
	for i, opts := range [][]timingwheel.Option{
		{timingwheel.WithWheelSize(2)}, {timingwheel.WithWheelSize(65536)}, {}, {timingwheel.WithTick(time.Microsecond)},
	} {
		w := timingwheel.New(opts...)
		defer w.Stop()
		if names[i] != "empty" {
			for _, d := range []time.Duration{time.Millisecond, time.Minute, 1<<63 - 1} {
				w.Schedule(d, func() {})
			}
		}
		h.Add(names[i], w)
	}
	url := serveHandler(t, h)
	for i, rings := range []int{44, 3, 0, 6} {
		tb.open(url + "?wheel=" + strings.ReplaceAll(names[i], " ", "+"))
		tb.until(fmt.Sprintf(`document.querySelector("#name").textContent === %q`, names[i]))
		require.InDelta(t, rings, eval[int](tb, `document.querySelectorAll("#dial .ring").length`), 1.0, names[i])
		require.NotContains(t, eval[string](tb, `document.querySelector("main").innerHTML`), "NaN", names[i])
		require.NotContains(t, eval[string](tb, `document.querySelector("main").innerHTML`), "Infinity", names[i])
	}
}

func TestEvilName(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	const evil = `"><img src=x onerror="document.title='broken into'"><script>alert(1)</script>`
	s.page.Add(evil, s.requests)
	tb.open(s.url())
	tb.press(`document.querySelector("#wheels li:nth-child(3) a")`)
	tb.until(fmt.Sprintf(`document.querySelector("#name").textContent === %q`, evil))
	require.Zero(t, eval[int](tb, `document.querySelectorAll("img, main script").length`))
	require.Equal(t, evil+" – timing wheels", eval[string](tb, `document.title`))
}

// Markup does not get in, even by mistake.
func TestPolicy(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	tb.mayComplain = true
	tb.open(s.url())
	require.Equal(t, "TypeError", eval[string](tb, `(() => { try { document.body.innerHTML = "<b>" } catch (e) { return e.name } })()`))
}

func TestServerRestarts(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	tb.mayComplain = true
	tb.open(s.url())
	for range 100_000 { // so that the new wheel has less to tell
		s.requests.Schedule(time.Hour, func() {})
	}
	tb.until(number("accounts", "scheduled") + ` > 100000`)
	s.close()
	tb.until(`document.querySelector("#connection").dataset.state === "lost"`)
	require.Equal(t, "connection lost, trying again", tb.text("connection"))
	time.Sleep(time.Second) // let it try in vain

	serve(t, s.Listener.Addr().String())
	tb.until(`document.querySelector("#connection").textContent === "live"`)
	for range 3 {
		require.NotRegexp(t, `NaN|-\d`, tb.text("rates"), "the new wheel's, not less than none")
		tb.rises("accounts", "expired")
	}
}

// A stream that is silent is opened again. (A proxy may hold a stream open whose server
// is gone.)
func TestSilence(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	var streams atomic.Int64
	url := serveHandler(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.RawQuery, "format=events") && streams.Add(1) == 1 {
			rw.Header().Set("Content-Type", "text/event-stream")
			http.NewResponseController(rw).Flush()
			<-r.Context().Done()
			return
		}
		s.page.ServeHTTP(rw, r)
	}))
	start := time.Now()
	tb.open(url)
	require.GreaterOrEqual(t, streams.Load(), int64(2))
	require.LessOrEqual(t, streams.Load(), 1+int64(time.Since(start)/(10*time.Second)), "after 10 s of silence each")
}

// A page in the background costs the server nothing.
func TestHidden(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	tb.open(s.url())
	require.Equal(t, int64(1), s.listeners.Load())
	newTab(t, chromedp.WithNewWindow(false)).toFront()
	tb.until(`document.visibilityState === "hidden"`)
	require.Eventually(t, func() bool { return s.listeners.Load() == 0 }, patience, time.Millisecond)
	tb.toFront()
	tb.until(`document.visibilityState === "visible"`)
	require.Eventually(t, func() bool { return s.listeners.Load() == 1 }, patience, time.Millisecond)
	tb.rises("accounts", "expired")
	tb.do(chromedp.Navigate("about:blank"))
	require.Eventually(t, func() bool { return s.listeners.Load() == 0 }, patience, time.Millisecond)
}
