package page

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// patience is for what comes at once, on a machine that has nothing else to do.
const patience = 5 * time.Minute

// chromium starts the browser that the tests share, each with a tab of its own.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, fmt.Errorf("there is no Chromium here: apt-get install chromium")
	}
	ctx, _ := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.WSURLReadTimeout(patience),
		chromedp.NoSandbox, // which root can not have
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
	)...)
	ctx, stopBrowser = chromedp.NewContext(ctx)
	return ctx, chromedp.Do(ctx)
})

var stopBrowser = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	stopBrowser()
	os.Exit(code)
}

// tab is a tab of the browser, with what the page in it has said and asked for.
type tab struct {
	t   *testing.T
	ctx context.Context

	opened      bool
	mayComplain bool // the test makes the page complain

	mu       sync.Mutex // guards what follows
	console  []string
	requests []string
}

// newTab opens an empty tab of 1280 by 900 pixels, or skips the test.
func newTab(t *testing.T, opts ...chromedp.ContextOption) *tab {
	browser, err := chromium()
	if err != nil && os.Getenv("TICKWHEEL_BROWSER") != "required" {
		t.Skip(err)
	}
	require.NoError(t, err)
	ctx, cancel := chromedp.NewContext(browser, opts...)
	t.Cleanup(cancel)
	tb := &tab{t: t, ctx: ctx}
	console := chromedp.Console(ctx)
	go func() {
		for message, err := range console {
			if err != nil {
				return
			}
			tb.mu.Lock()
			tb.console = append(tb.console, message.String())
			tb.mu.Unlock()
		}
	}()
	require.NoError(t, chromedp.Listen(ctx, func(e any) {
		if e, ok := e.(*network.EventRequestWillBeSent); ok {
			tb.mu.Lock()
			defer tb.mu.Unlock()
			tb.requests = append(tb.requests, e.Request.URL)
		}
	}))
	tb.resize(1280, 900)
	_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	return tb
}

// media sets what the page finds by media queries.
func (tb *tab) media(features ...string) {
	var params emulation.SetEmulatedMediaParams
	for _, f := range features {
		name, value, _ := strings.Cut(f, ":")
		params.Features = append(params.Features, &emulation.MediaFeature{Name: name, Value: value})
	}
	_, err := chromedp.Call(tb.ctx, emulation.SetEmulatedMedia, params)
	require.NoError(tb.t, err)
}

// open loads the page and waits until it is live. In the end, when its server is still there, the
// page must be in order.
func (tb *tab) open(url string) {
	tb.t.Helper()
	if !tb.opened {
		tb.opened = true
		tb.t.Cleanup(func() { tb.inOrder(url) })
	}
	tb.do(chromedp.Navigate(url))
	tb.until(`document.querySelector("#connection").textContent === "live"`)
}

func (tb *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	require.NoError(tb.t, chromedp.Do(ctx, steps...))
}

// eval returns what an expression in the page is.
func eval[T any](tb *tab, expression string) T {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(tb.t, err, expression)
	return value
}

// until waits until an expression in the page is true.
func (tb *tab) until(expression string) {
	tb.t.Helper()
	tb.repeat(func() {}, expression)
}

// repeat calls f again and again until an expression in the page is true. So it sees what
// does not last.
func (tb *tab) repeat(f func(), expression string) {
	tb.t.Helper()
	for start := time.Now(); !eval[bool](tb, expression); time.Sleep(50 * time.Millisecond) {
		require.Less(tb.t, time.Since(start), patience, expression)
		f()
	}
}

// pressed is an expression that clicks the element that another returns, if a mouse can: it
// is true then. One step of the page finds the element and clicks it. Had a mouse moved
// there in between, the page might have moved the element away.
func pressed(element string) string {
	return fmt.Sprintf(`((e) => {
		if (!e?.checkVisibility() || e.disabled) return false;
		e.scrollIntoView({ block: "center" });
		const { x, y, width, height } = e.getBoundingClientRect();
		if (!e.contains(document.elementFromPoint(x + width / 2, y + height / 2))) return false;
		e.click();
		return true;
	})(%s)`, element)
}

// press clicks the element that an expression in the page returns.
func (tb *tab) press(element string) {
	tb.t.Helper()
	tb.until(pressed(element))
}

// confirm clicks a button that asks whether its user is sure, and clicks it again in the
// same step: the page takes its question back after 4 s.
func (tb *tab) confirm(button string) {
	tb.t.Helper()
	tb.until(fmt.Sprintf(`%s && !(%s).click()`, pressed(button), button))
}

// text returns what is written in the element of that id.
func (tb *tab) text(id string) string {
	tb.t.Helper()
	return eval[string](tb, fmt.Sprintf(`document.getElementById(%q).innerText`, id))
}

// number is an expression for what a dl says of a term, as a number.
func number(dl, term string) string {
	return fmt.Sprintf(`Number([...document.querySelectorAll("#%s div")]
		.find((d) => d.children[0].textContent === %q).children[1].textContent.replaceAll(",", ""))`, dl, term)
}

// term returns what a dl says of a term, as a number.
func (tb *tab) term(dl, term string) float64 {
	tb.t.Helper()
	return eval[float64](tb, number(dl, term))
}

// rises waits until the number that a dl says of a term is greater than now.
func (tb *tab) rises(dl, term string) {
	tb.t.Helper()
	tb.until(fmt.Sprintf(`%s > %v`, number(dl, term), tb.term(dl, term)))
}

// resize gives the window this size, and waits until the page has it.
func (tb *tab) resize(width, height int64) {
	tb.t.Helper()
	tb.do(chromedp.EmulateViewport(width, height))
	tb.until(fmt.Sprintf(`innerWidth === %d && innerHeight === %d`, width, height))
}

// narrow checks that the page is no wider than windows of these widths.
func (tb *tab) narrow(widths ...int64) {
	tb.t.Helper()
	for _, width := range widths {
		tb.resize(width, 800)
		require.LessOrEqual(tb.t, eval[int64](tb, `document.documentElement.scrollWidth`), width)
	}
}

// shoot writes a picture of the page from its top to a place that an expression in it returns.
func (tb *tab) shoot(file, end string) {
	shot, err := chromedp.Call(tb.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
		Clip: &page.Viewport{Width: 1280, Height: math.Round(eval[float64](tb, end)), Scale: 1}, CaptureBeyondViewport: new(true),
	})
	require.NoError(tb.t, err)
	require.NoError(tb.t, os.WriteFile(file, shot.Data, 0o644))
}

// inOrder checks that the page had nothing to complain of, and has asked nobody but its
// own server.
func (tb *tab) inOrder(server string) {
	tb.t.Helper()
	own, err := url.Parse(server)
	require.NoError(tb.t, err)
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if !tb.mayComplain {
		require.Empty(tb.t, tb.console)
	}
	require.NotEmpty(tb.t, tb.requests)
	for _, request := range tb.requests {
		u, err := url.Parse(request)
		require.NoError(tb.t, err)
		require.Equal(tb.t, own.Host, u.Host, request)
	}
}

// toFront hides the other tabs of its window.
func (tb *tab) toFront() {
	_, err := chromedp.Call(tb.ctx, page.BringToFront, cdp.Empty{})
	require.NoError(tb.t, err)
}
