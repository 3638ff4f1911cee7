package page_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
	"github.com/tickwheel/tickwheel/durable/page"
	"github.com/tickwheel/tickwheel/timingwheel/debug"
)

// patience is how long a test waits for what must come. It is a bound, not a measure. The
// page counts for a fiftieth of the time, so that a slow machine counts seldom.
const patience = 10 * time.Minute

// within returns a context that ends with patience: an engine tries for as long as it may.
// Without a deadline it asks once.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// used returns a queue in a directory, in which four jobs wait, one runs, two are dead
// and one is done, and what ends the one that runs.
func used(t *testing.T) (q *durable.Queue, end func()) {
	e, err := embedded.Open(within(t), t.TempDir())
	require.NoError(t, err)
	q, err = durable.Open(within(t), e)
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	begun, release := make(chan bool), make(chan bool)
	q.Handle("good", func(context.Context, *durable.Attempt) error { return nil })
	q.Handle("bad", func(context.Context, *durable.Attempt) error { return durable.Discard(errors.New("no")) })
	q.Handle("long", func(ctx context.Context, _ *durable.Attempt) error {
		close(begun)
		select {
		case <-release:
		case <-ctx.Done(): // the test has failed, and the Queue is closed
		}
		return nil
	})
	far := durable.Job{Kind: "good", After: time.Hour}
	_, err = q.AddMany(within(t), far, far, far, far, durable.Job{Kind: "good"}, durable.Job{Kind: "bad"}, durable.Job{Kind: "bad"}, durable.Job{Kind: "long"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	<-begun
	require.Eventually(t, func() bool { s := q.Stats(); return s.Done == 1 && s.Dead == 2 }, patience, time.Millisecond)
	return q, func() {
		close(release)
		stop()
		require.NoError(t, <-done)
	}
}

// shown is what the page is sent of a queue.
type shown struct {
	Queues []struct {
		Name   string
		URL    string
		Stats  debug.QueueStats
		Counts *struct {
			debug.QueueCounts
			Error string
		}
	}
}

func ask(t *testing.T, h http.Handler) (s shown) {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest("GET", "/?format=json", nil))
	require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &s))
	require.Len(t, s.Queues, 1)
	return s
}

// The page shows what a real queue holds, and what its engine keeps.
func TestQueueOnThePage(t *testing.T) {
	q, end := used(t)
	h := debug.NewHandler()
	h.AddQueue("mails", page.Queue(q, page.WithURL("/admin/jobs/")))
	require.Equal(t, "/admin/jobs/", ask(t, h).Queues[0].URL)
	require.Nil(t, ask(t, h).Queues[0].Counts, "the first answer does not wait for a count")
	var s shown
	require.Eventually(t, func() bool { s = ask(t, h); c := s.Queues[0].Counts; return c != nil && c.Error == "" }, patience, 10*time.Millisecond)
	got := s.Queues[0]
	require.Equal(t, "mails", got.Name)
	require.Empty(t, got.Counts.Error)
	require.Equal(t, debug.QueueCounts{Waiting: 4, Running: 1, Dead: 2}, got.Counts.QueueCounts)
	require.Equal(t, []int64{1, 1, 4, 1, 2}, []int64{got.Stats.Held, got.Stats.Running, got.Stats.Attempts, got.Stats.Done, got.Stats.Dead})
	require.Equal(t, int64(4), got.Stats.Lateness.Total())
	end()

	require.NoError(t, q.Close())
	require.Eventually(t, func() bool { s = ask(t, h); return s.Queues[0].Counts.Error != "" }, patience, 10*time.Millisecond)
	require.Contains(t, s.Queues[0].Counts.Error, durable.ErrClosed.Error())
	require.Equal(t, int64(2), s.Queues[0].Stats.Done, "its figures stand still")
	require.PanicsWithValue(t, "page: Queue: nil Queue", func() { page.Queue(nil) })
}

// Whatever the page asks for has the name that it has in the Stats.
func TestNamesOfStats(t *testing.T) {
	q, end := used(t)
	end()
	stats, shown := reflect.ValueOf(q.Stats()), reflect.ValueOf(page.Queue(q).Stats())
	for i := range shown.NumField() {
		name := shown.Type().Field(i).Name
		if name == "Unhandled" {
			continue // see TestUnhandled
		}
		require.Equal(t, stats.FieldByName(name).Interface(), shown.Field(i).Interface(), name)
	}
}

// The page names kinds that nobody runs.
func TestUnhandled(t *testing.T) {
	e, err := embedded.Open(within(t), t.TempDir())
	require.NoError(t, err)
	q, err := durable.Open(within(t), e, durable.WithLease(2*time.Second))
	require.NoError(t, err)
	_, err = q.Add(within(t), durable.Job{Kind: "nobody's"})
	require.NoError(t, err)
	q.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	h := debug.NewHandler()
	h.AddQueue("mails", page.Queue(q))
	var found []debug.UnhandledKind
	require.Eventually(t, func() bool { found = ask(t, h).Queues[0].Stats.Unhandled; return len(found) > 0 }, patience, 10*time.Millisecond)
	require.Equal(t, "nobody's", found[0].Kind)
	require.Positive(t, found[0].Overdue)
	stop()
	require.NoError(t, <-done)
	require.NoError(t, q.Close())
}

// A count that has no time left says how far it came.
func TestCountEnds(t *testing.T) {
	q, end := used(t)
	defer end()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c, err := q.Count(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.LessOrEqual(t, c.Waiting, int64(4))
}
