package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/debug"
)

// serveOne starts a server of the page of one wheel, and returns its address.
func serveOne(t *testing.T, w *timingwheel.TimingWheel) string {
	h := debug.NewHandler()
	h.Add("one", w)
	t.Cleanup(func() { w.Stop() })
	return serveHandler(t, h)
}

// serveHandler starts a server of a page, and returns its address.
func serveHandler(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections() // ends the streams too, which do not end by themselves
		s.Close()
	})
	return s.URL
}

// point moves the mouse to the place that an expression in the page returns, as [x, y].
// What is there may move meanwhile, when a text above it gets longer. Then the mouse
// follows it.
func (tb *tab) point(expression string) {
	tb.t.Helper()
	for at := []float64(nil); ; {
		now := eval[[]float64](tb, expression)
		if slices.Equal(at, now) {
			return
		}
		at = now
		tb.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0], at[1]))
	}
}

// slot is an expression for the place of a slot of a ring.
func slot(ring, slot int) string {
	return fmt.Sprintf(`(() => {
		const ring = dial.rings[%d];
		const [x, y] = point(ring.middle, ring.at((%d + 0.5) / ring.slots.length));
		const at = new DOMPoint(x, y).matrixTransform(dial.node.getScreenCTM());
		return [at.x, at.y];
	})()`, ring, slot)
}

// part is an expression for a place in a chart, at so much of the way from its left end.
func part(chart string, part float64) string {
	return fmt.Sprintf(`(() => {
		const box = $(%q).getBoundingClientRect();
		return [box.left + left + %v * (box.width - left - 1), box.top + 50];
	})()`, chart, part)
}

const tip = `$("tip").hidden ? "" : $("tip").textContent`

func TestValuesUnderThePointer(t *testing.T) {
	tb := newTab(t)
	// With ticks so long, what the tip says of a slot does not change during the test.
	w := timingwheel.New(timingwheel.WithTick(time.Hour), timingwheel.WithWheelSize(64), timingwheel.WithShards(1))
	tb.open(serveOne(t, w))
	for _, d := range []time.Duration{30 * time.Hour, 30 * time.Hour, 1800 * time.Hour} {
		w.Schedule(d, func() {})
	}
	tb.until(`document.querySelector(".total")?.textContent === "3"`)
	require.Empty(t, eval[string](tb, tip))
	arena := w.Stats().Arena
	require.Positive(t, arena.Free)
	for term, entries := range map[string]int64{"memory": arena.Capacity, "memory unused": arena.Free} {
		value := fmt.Sprintf(`[...$("now").children].find((d) => d.firstChild.textContent === %q)?.lastChild.textContent ?? ""`, term)
		require.Equal(t, eval[string](tb, fmt.Sprintf(`compact(%d) + "B"`, 32*entries)), eval[string](tb, value), "%s, of 32 bytes each", term)
	}

	tb.point(slot(0, 31))
	require.Equal(t, "slot 32 of 64, 1\u00a0h each\n2 tasks\ndue in 1.3\u00a0d", eval[string](tb, tip))
	w.Schedule(30*time.Hour, func() {})
	tb.until(`$("tip").textContent.includes("3 tasks")`) // while the pointer rests
	tb.point(slot(0, 40))
	require.Contains(t, eval[string](tb, tip), "slot 41 of 64, 1\u00a0h each\n0 tasks\n")
	tb.point(slot(1, 28))
	require.Equal(t, "slot 29 of 64, 2.7\u00a0d each\n1 task\ncascading in 75\u00a0d", eval[string](tb, tip))
	tb.point(`(() => {
		const box = dial.node.getBoundingClientRect();
		return [(box.left + box.right) / 2, box.top + 40];
	})()`)
	require.Equal(t, "ring of 64 slots of 1\u00a0h", eval[string](tb, tip), "in the gap")

	tb.point(part("pending", 1))
	// The chart's last pixel is of the last event or of the one before it.
	tb.until(`/^4 pending\n(now|\d+.ms ago)$/.test($("tip").textContent)`)
	tb.point(part("lateness", 10.5/28))
	require.Regexp(t, `^512.µs to 1.0.ms late\nlast .*: 0\nsince the start: 0$`, eval[string](tb, tip))
	tb.point(part("lateness", 0))
	require.Regexp(t, `^less than 1.µs late\n`, eval[string](tb, tip))
	tb.point(part("lateness", 1))
	require.Regexp(t, `^1.1.min late or more\n`, eval[string](tb, tip))

	tb.do(chromedp.KeyEvent(kb.Escape))
	require.Empty(t, eval[string](tb, tip))
	tb.point(slot(0, 31))
	require.NotEmpty(t, eval[string](tb, tip))
	tb.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 5, 5))
	require.Empty(t, eval[string](tb, tip))
}

// On a narrow screen the tip is beside the finger and within the window.
func TestTipStaysInTheWindow(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	tb.resize(390, 800)
	tb.open(s.url())
	for _, i := range []int{40, 64, 128, 192, 220} {
		tb.point(slot(0, i))
		require.NotEmpty(t, eval[string](tb, tip))
		require.True(t, eval[bool](tb, `(() => {
			const box = $("tip").getBoundingClientRect();
			return box.left >= 0 && box.top >= 0 && box.right <= innerWidth && box.bottom <= innerHeight;
		})()`), "slot %d", i)
	}
}

// The numbers on an axis are whole, few, and at equal distances.
func TestAxes(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	tb.open(s.url())
	for digits := range 13 {
		got := eval[[]float64](tb, fmt.Sprintf(`powers(%v, 3)`, "1e"+fmt.Sprint(digits)))
		require.LessOrEqual(t, len(got), 4)
		require.Equal(t, 1.0, got[0])
		for i := 2; i < len(got); i++ {
			require.Equal(t, got[1], got[i]/got[i-1])
		}
		if digits > 0 {
			require.Greater(t, len(got), 1)
		}
	}
	require.True(t, eval[bool](tb, `[...Array(5000).keys(), 123456, 7654321].every((n) => nice(n) >= n && nice(n) <= 2 * Math.max(1, n) && Number.isInteger(nice(n) / 2))`))
	require.Equal(t, []float64{10, 10, 10, 100, 1000}, eval[[]float64](tb, `[0, 1, 10, 11, 1000].map(powerAbove)`))
	time.Sleep(2 * time.Second)
	for _, label := range strings.Fields(eval[string](tb, `[...document.querySelectorAll("#scale text, #lateness .axis[text-anchor=end]")].map((e) => e.textContent).join(" ")`)) {
		require.Regexp(t, `^10*[KMB]?$`, label)
	}
}

// A driver that is held up leaves much overdue. It is one line.
func TestNextDeadlines(t *testing.T) {
	tb := newTab(t)
	w := timingwheel.New(timingwheel.WithExecutor(timingwheel.Inline()))
	held, release := make(chan bool), make(chan bool)
	url := serveOne(t, w)
	w.Schedule(0, func() { held <- true; <-release })
	<-held
	defer close(release)
	for i := range 20 {
		w.Schedule(time.Duration(i)*time.Millisecond, func() {})
	}
	w.Schedule(48*time.Hour, func() {})
	w.Schedule(48*time.Hour+time.Minute, func() {})
	time.Sleep(100 * time.Millisecond)
	tb.open(url)
	next := eval[[]string](tb, `[...document.querySelectorAll("#next li")].map((li) => li.textContent)`)
	require.Len(t, next, 2)
	require.Regexp(t, `^(due now|overdue by .*)× (19|20)$`, next[0]) // the first was due at once
	require.Equal(t, "in 2.0\u00a0d× 2", next[1], "what reads the same is one line")
	tb.until(`!$("note").hidden`)
	require.Regexp(t, `^The executor has held the driver up for [\d.]+.(s|min): .*TestNextDeadlines.*`, tb.text("note"))
	release <- true
	tb.until(`$("note").hidden`)
}

// A hiccup before the page was opened is in the figures since the start only.
func TestLatenessOfTheLastMinute(t *testing.T) {
	tb := newTab(t)
	w := timingwheel.New(timingwheel.WithExecutor(timingwheel.Inline()))
	url := serveOne(t, w)
	held, release := make(chan bool), make(chan bool)
	w.Schedule(0, func() { held <- true; <-release })
	<-held
	for range 100 {
		w.Schedule(time.Millisecond, func() {})
	}
	time.Sleep(300 * time.Millisecond)
	close(release)
	require.Eventually(t, func() bool { return w.Len() == 0 }, patience, time.Millisecond)
	before := w.Stats().Lateness
	require.Greater(t, before.Max, 200*time.Millisecond)
	tb.open(url)
	for range 10 {
		w.Schedule(time.Millisecond, func() {})
	}
	cell := func(row, column int) string {
		return eval[string](tb, fmt.Sprintf(`$("quantiles").children[%d].children[%d].textContent`, row, column))
	}
	tb.until(`$("quantiles").children[0].children[4].textContent === "10"`)
	require.Regexp(t, `^last \d.*s$`, cell(0, 0))
	require.Equal(t, []string{"since the start", fmt.Sprint(before.Total() + 10)}, []string{cell(1, 0), cell(1, 4)})
	require.Regexp(t, `^(\d\d\d.ms|[\d.]+.s)$`, cell(1, 3), "the hiccup")
	drawn := `[...document.querySelectorAll("#lateness .bar%s")].filter((b) => b.getAttribute("height") > 0).length`
	require.Positive(t, eval[int](tb, fmt.Sprintf(drawn, ":not(.old)")))
	require.Greater(t, eval[int](tb, fmt.Sprintf(drawn, ".old")), eval[int](tb, fmt.Sprintf(drawn, ":not(.old)")))
}

// A screen that is too narrow for the table of levels shows all its columns nonetheless.
func TestNarrowTable(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	for _, width := range []int64{320, 390, 700, 800, 1280} {
		tb.resize(width, 800)
		tb.open(s.url())
		cells := eval[[][]float64](tb, `[...document.querySelectorAll("#levels th, #levels td, #quantiles th, #quantiles td")].map((c) => [c.getBoundingClientRect().left, c.getBoundingClientRect().right])`)
		require.Len(t, cells, 3*7+2*5)
		for _, c := range cells {
			require.GreaterOrEqual(t, c[0], 0.0, width)
			require.Greater(t, c[1], c[0]+10)
			require.LessOrEqual(t, c[1], float64(width))
		}
		if width < 768 {
			require.Regexp(t, `"moved to a finer ring"`, eval[string](tb, `getComputedStyle(document.querySelector("#levels td:last-child"), "::before").content`))
		}
	}
}

// The drawing is explained where it is drawn, and a word has one meaning.
func TestWords(t *testing.T) {
	tb, s := newTab(t), serve(t, "")
	tb.open(s.url())
	require.Equal(t, []string{"ring", "gap", "hand", "bars", "dots"}, eval[[]string](tb, `[...document.querySelectorAll(".legend dt")].map((e) => e.textContent)`))
	require.NotContains(t, eval[string](tb, `document.body.innerText`), "running", "a wheel, a task, or both")
}

// The alert says for how long, and by whom, and the list of wheels says which one.
func TestHeldUp(t *testing.T) {
	tb := newTab(t)
	w := timingwheel.New(timingwheel.WithExecutor(timingwheel.Inline()))
	idle := timingwheel.New()
	defer idle.Stop()
	defer w.Stop()
	h := debug.NewHandler()
	h.Add("idle", idle)
	h.Add("held", w)
	tb.open(serveHandler(t, h))
	held, release := make(chan bool), make(chan bool)
	w.Schedule(0, func() { held <- true; <-release })
	<-held
	tb.until(`$("wheels").children[1].textContent === "heldheld up"`)
	require.True(t, eval[bool](tb, `$("note").hidden`), "the wheel that is shown is well")
	require.NotContains(t, tb.text("wheels"), "idleheld")

	tb.press(`document.querySelector("#wheels li:nth-child(2) a")`)
	tb.until(`!$("note").hidden`)
	const seconds = `(([, n, unit]) => n * (unit === "min" ? 60 : 1))($("note").textContent.match(/for ([\d.]+)\u00a0(s|min):/))`
	first := eval[float64](tb, seconds)
	require.GreaterOrEqual(t, first, 1.0)
	require.LessOrEqual(t, first, w.Stats().HeldUp.Seconds()+0.5, "it is rounded")
	require.Regexp(t, `: .*/page\.TestHeldUp\.func\d+\. No function fires until it returns\.$`, tb.text("note"))
	tb.until(fmt.Sprintf(`%s > %v`, seconds, first+1))

	close(release)
	tb.until(`$("note").hidden`)
	tb.until(`$("wheels").children[1].textContent === "held0"`)
}
