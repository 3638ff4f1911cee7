package page

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/debug"
)

// Purgatories are shown as they are now, with their rates and the keys with most.
func TestPurgatories(t *testing.T) {
	tb := newTab(t)
	w := timingwheel.New()
	defer w.Stop()
	p := purgatory.New[string](w)
	h := debug.NewHandler()
	h.AddPurgatory("polls", p)
	tb.open(serveHandler(t, h))
	tb.until(`!$("purgatories-section").hidden`)
	require.True(t, eval[bool](tb, `$("pools-section").hidden`))
	require.Contains(t, tb.text("note"), "No wheel")
	require.True(t, eval[bool](tb, `$("purgatories").checkVisibility()`), "there are purgatories without a wheel")
	h.Add("w", w)

	const evil = `<img src=x onerror="document.title='evil'">`
	const keys = `[...$("purgatories").children[0].querySelectorAll(".keys li")].map((e) => e.textContent)`
	value := func(term string) string {
		return fmt.Sprintf(`[...$("purgatories").children[0].querySelectorAll("div")].find((d) => d.children[0].textContent === "%s").children[1].textContent`, term)
	}
	tb.until(value("parked") + ` === "0"`)
	require.Empty(t, eval[[]string](tb, keys))
	for range 1234 {
		p.Park(time.Hour, nil, nil, evil)
	}
	for i := range 20 {
		for range i + 1 {
			p.Park(time.Hour, nil, nil, fmt.Sprint("topic ", i))
		}
	}
	tb.until(value("parked") + ` === "1,444" && ` + value("keys") + ` === "21"`)
	tb.until(keys + `[9] === "topic 11× 12"`) // the keys may be older than the other figures
	top := eval[[]string](tb, keys)
	require.Len(t, top, 10)
	require.Equal(t, []string{evil + "× 1,234", "topic 19× 20", "topic 18× 19"}, top[:3])
	tb.narrow(320, 640, 1280)

	// The rates rise while something happens, and fall when nothing does any more.
	tb.until(value("parked /s") + ` === "0"`)
	p.Notify("topic 19")
	tb.repeat(func() {
		p.Notify(evil)
		for range 1000 {
			p.Park(time.Hour, nil, nil, evil)
		}
	}, `Number(`+value("satisfied /s")+`.replaceAll(",", "")) > 10`)
	p.Notify(evil)
	tb.until(value("satisfied /s") + ` === "0"`)
	require.Equal(t, "190", eval[string](tb, value("parked")))
	tb.until(keys + `[0] === "topic 18× 19"`)

	h.AddPurgatory(evil, purgatory.New[int](w))
	tb.until(`$("purgatories").children.length === 2`)
	require.Equal(t, evil, eval[string](tb, `$("purgatories").children[1].firstChild.textContent`))
	require.Zero(t, eval[int](tb, `document.images.length`))
	require.NotEqual(t, "evil", eval[string](tb, `document.title`))

	th := purgatory.NewThreshold[int](w)
	_, err := th.Park(7, time.Hour, nil)
	require.NoError(t, err)
	h.AddPurgatory(evil, th)
	tb.until(`[...$("purgatories").children[1].querySelectorAll("dt")].map((d) => d.textContent).join() === "parked,parked /s,satisfied /s,expired /s,canceled /s"`)
	require.Equal(t, "1", eval[string](tb, `$("purgatories").children[1].querySelector("dd").textContent`))
	h.RemovePurgatory(evil)
	h.RemovePurgatory("polls")
	tb.until(`$("purgatories-section").hidden`)
}
