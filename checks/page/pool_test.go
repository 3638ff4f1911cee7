package page

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/debug"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// Pools are shown as they are now, with bars against their bounds.
func TestPools(t *testing.T) {
	tb := newTab(t)
	p := pool.New(2, 4, pool.Wait)
	w := timingwheel.New(timingwheel.WithExecutor(p))
	defer w.Stop()
	h := debug.NewHandler()
	h.AddPool("mail", p)
	tb.open(serveHandler(t, h))
	tb.until(`!$("pools-section").hidden`)
	require.Contains(t, tb.text("note"), "No wheel")
	require.True(t, eval[bool](tb, `$("pools").checkVisibility()`), "there are pools without a wheel")
	h.Add("w", w)

	const (
		values = `[...document.querySelectorAll("#pools dd span")].map((e) => e.textContent)`
		// How much of each frame its bar fills.
		shares = `[...document.querySelectorAll("#pools .share")].map((e) => Math.round(100 * e.firstChild.getBoundingClientRect().width / e.clientWidth))`
	)
	shows := func(workers, queue, waiting string, bars ...int) {
		t.Helper()
		tb.until(values + fmt.Sprintf(`.join() === "%s,%s,%s"`, workers, queue, waiting))
		require.Equal(t, bars, eval[[]int](tb, shares))
	}
	shows("0 of 2", "0 of 4", "0", 0, 0)
	release := make(chan bool)
	block := func() { <-release }
	w.Schedule(0, block)
	shows("1 of 2", "0 of 4", "0", 50, 0)
	for range 4 {
		w.Schedule(0, block)
	}
	shows("2 of 2", "3 of 4", "0", 100, 75)
	for range 3 {
		w.Schedule(0, block)
	}
	shows("2 of 2", "4 of 4", "2", 100, 100)
	tb.until(`[...document.querySelectorAll("#now div")].find((d) => d.children[0].textContent === "waiting for room").children[1].textContent === "2"`)

	evil := pool.New(1, 0, pool.Wait)
	h.AddPool("<img src=x>", evil)
	tb.until(`$("pools").children.length === 2`)
	require.Equal(t, "<img src=x>", eval[string](tb, `$("pools").children[1].firstChild.textContent`))
	require.Equal(t, []string{"0 of 1", "0 of 0", "0"}, eval[[]string](tb, values)[3:])
	require.Equal(t, []int{0, 0}, eval[[]int](tb, shares)[2:])
	tb.narrow(320, 640, 1280)
	require.NotContains(t, eval[string](tb, `document.body.innerText`), "running", "a word has one meaning")
	h.RemovePool("<img src=x>")

	close(release)
	shows("0 of 2", "0 of 4", "0", 0, 0)
	p.Close()
	tb.until(`$("pools").children[0].firstChild.textContent === "mailclosed"`)
	h.RemovePool("mail")
	tb.until(`$("pools-section").hidden`)
}
