package page

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel/debug"
)

// madeUp is a queue whose figures the test sets.
type madeUp struct {
	mu     sync.Mutex
	stats  debug.QueueStats
	counts debug.QueueCounts
	err    error
}

func (m *madeUp) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *madeUp) Stats() debug.QueueStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}

func (m *madeUp) Count(context.Context) (debug.QueueCounts, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts, m.err
}

// lateBy adds the lateness of n attempts, each of less than 2^i microseconds.
func (m *madeUp) lateBy(n int64, i int) {
	h := &m.stats.Lateness
	h.Counts[i] += n
	h.Max = max(h.Max, h.UpperBound(i)-1000)
	h.P50, h.P99 = h.Quantile(0.5), h.Quantile(0.99)
}

// linked is a queue that has a page of its own.
type linked struct{ *madeUp }

func (linked) URL() string { return "/admin/jobs/" }

func newMadeUp() *madeUp {
	m := &madeUp{counts: debug.QueueCounts{Waiting: 1234567, Running: 12, Dead: 3}}
	m.stats = debug.QueueStats{Held: 4321, Claimed: 21, Running: 8, Attempts: 5000, Done: 4900, Failed: 90, Dead: 2, LeaseLost: 1}
	m.lateBy(4900, 10)
	m.lateBy(100, 15)
	return m
}

const queueTerms = `[...$("queues").children[0].querySelectorAll("dl div")].map((d) => d.children[0].textContent + ": " + d.children[1].textContent.replace("\u00a0", " "))`

// Queues are shown as they are now, with what was counted of them.
func TestQueues(t *testing.T) {
	tb := newTab(t)
	m, h := newMadeUp(), debug.NewHandler()
	h.AddQueue("mails", m)
	s := httptest.NewServer(h)
	defer s.Close()
	defer s.CloseClientConnections()
	tb.open(s.URL)
	tb.until(`!$("queues-section").hidden`)
	require.False(t, eval[bool](tb, `$("note").checkVisibility()`), "there are queues without a wheel")
	require.True(t, eval[bool](tb, `$("queues").checkVisibility()`))
	require.False(t, eval[bool](tb, `$("queues").querySelector("h3 a").hasAttribute("href")`))
	has := func(term, value string) {
		t.Helper()
		tb.until(fmt.Sprintf(`%s.includes("%s: %s")`, queueTerms, term, value))
	}
	has("waiting", "1,234,567")
	has("done /s", "0")
	terms := eval[[]string](tb, queueTerms)
	require.Equal(t, []string{"waiting: 1,234,567", "running: 12", "dead: 3"}, terms[:3])
	require.Equal(t, []string{"p50 ≤: 1.0 ms", "p99 ≤: 33 ms"}, terms[5:7])
	require.Equal(t, []string{"held: 4,321", "of these claimed: 21", "handlers: 8", "done /s: 0", "failed /s: 0", "died: 2", "leases lost: 1"}, terms[7:])
	headings := eval[[]string](tb, `[...$("queues").querySelectorAll("h4")].map((h) => [...h.children].map((c) => c.textContent).join(": "))`)
	require.Regexp(t, `^Kept: counted (just now|.* ago), in \d`, headings[0])
	require.Regexp(t, `^Late: last `, headings[1])
	require.Equal(t, []string{"Late: since the start", "This process: "}, headings[2:])

	// The rates and the lateness of the last minute follow what happens.
	tb.repeat(func() {
		m.set(func() { m.stats.Attempts += 1000; m.stats.Done += 1000; m.lateBy(1000, 5) })
	}, `Number(`+queueTerms+`.find((l) => l.startsWith("done /s")).split(": ")[1].replaceAll(",", "")) > 100`)
	tb.until(queueTerms + `.slice(3, 5).map((l) => l.split("≤: ")[1]).join() === "32 µs,32 µs"`)
	has("done /s", "0")

	// What could not be counted in full says so.
	m.set(func() { m.counts.Waiting, m.err = 77, errors.New("<i>too slow</i>") })
	has("waiting", "≥ 77")
	require.Contains(t, eval[string](tb, `$("queues").querySelector("h4").textContent`), ", not all: <i>too slow</i>")

	const evil = `<img src=x onerror="document.title='evil'">`
	h.AddQueue(evil, newMadeUp())
	tb.until(`$("queues").children.length === 2`)
	require.Equal(t, evil, eval[string](tb, `$("queues").children[1].firstChild.textContent`))
	// A kind that nobody runs.
	m.set(func() { m.stats.Unhandled = []debug.UnhandledKind{{Kind: evil, Overdue: 90 * time.Second}} })
	tb.until(queueTerms + `[0].includes("overdue by ")`)
	require.Contains(t, eval[[]string](tb, queueTerms)[0], evil)
	require.Equal(t, "Nobody runs", eval[string](tb, `$("queues").querySelector("h4").textContent`))
	for _, width := range []int64{320, 640, 1280} {
		tb.resize(width, 800)
		require.LessOrEqual(t, eval[int64](tb, `document.documentElement.scrollWidth`), width)
	}
	require.Zero(t, eval[int](tb, `document.images.length + document.querySelectorAll("#queues i").length`))
	require.NotEqual(t, "evil", eval[string](tb, `document.title`))
	h.AddQueue("mails", linked{m})
	tb.until(`$("queues").querySelector("h3 a").getAttribute("href") === "/admin/jobs/"`)
	h.RemoveQueue(evil)
	h.RemoveQueue("mails")
	tb.until(`$("queues-section").hidden`)
	tb.inOrder(s.URL)
}
