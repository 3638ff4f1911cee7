package page

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/admin"
	"github.com/tickwheel/tickwheel/durable/memory"
)

var adminPicture = flag.String("admin-picture", "", "write the picture of durable/README.md to this `file`; it takes two minutes")

// shop runs the jobs of a shop until the test ends, on two workers, and returns the queue
// of one: what is sent at once, now and then a failure, some that are dead, some that wait
// for a limit or a pause to end, and a kind that nobody runs.
func shop(t *testing.T) *durable.Queue {
	store := memory.New(nil)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var queues []*durable.Queue
	for range 2 {
		q, err := durable.Open(ctx, store.Open(), durable.WithWorkerName("backoffice"), durable.WithLease(6*time.Second), durable.WithLogger(slog.New(slog.DiscardHandler)), durable.WithKindConcurrency("thumbnail", 2))
		require.NoError(t, err)
		handleShop(q)
		queues = append(queues, q)
		running.Go(func() { q.Run(ctx) })
	}
	q := queues[0]
	require.NoError(t, q.SetSchedule(ctx, "nightly report", "CRON_TZ=Europe/Berlin 30 2 * * *", durable.Job{Kind: "report"}))
	require.NoError(t, q.SetSchedule(ctx, "exchange rates", "@every 20s", durable.Job{Kind: "rates"}))
	require.NoError(t, q.SetSchedule(ctx, "newsletter", "0 9 * * MON", durable.Job{Kind: "mail"}))
	require.NoError(t, q.PauseSchedule(ctx, "newsletter"))
	require.NoError(t, q.SetLimit(ctx, "per customer", durable.Limit{Kind: "thumbnail", PerLane: true, Running: 2, Rate: 5, Burst: 20}))
	require.NoError(t, q.Pause(ctx, durable.Pausable{Kind: "survey"}))
	for i, j := range []durable.Job{
		{Kind: "webhook", Payload: []byte(`{"order":"A-20481","event":"paid"}`), Key: "A-20481/paid", Lane: "customer 7", MaxAttempts: 3},
		{Kind: "webhook", Payload: []byte(`{"order":"A-20467","event":"sent"}`), MaxAttempts: 3},
		{Kind: "invoice", Payload: []byte(`{"order":"A-20455"}`), Meta: map[string]string{"trace": "4bf92f3577b34da6"}},
		{Kind: "archive", After: 0}, {Kind: "archive", After: time.Second},
	} {
		_, err := q.Add(ctx, j)
		require.NoError(t, err, i)
	}
	for range 40 {
		_, err := q.AddMany(ctx, durable.Job{Kind: "survey", After: rand.N(90 * time.Second)})
		require.NoError(t, err)
	}
	for range 400 {
		_, err := q.AddMany(ctx, durable.Job{Kind: "mail", After: time.Hour + rand.N(240*time.Hour)})
		require.NoError(t, err)
	}
	running.Go(func() { sell(ctx, q) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		for _, q := range queues {
			require.NoError(t, q.Close())
		}
	})
	return q
}

// handleShop says what becomes of the jobs of a shop.
func handleShop(q *durable.Queue) {
	work := func(d time.Duration, fails float64) durable.Handler {
		return func(ctx context.Context, _ *durable.Attempt) error {
			select {
			case <-time.After(rand.N(2 * d)):
			case <-ctx.Done():
			}
			if rand.Float64() < fails {
				return durable.RetryAfter(2*time.Second, errors.New("421 4.7.0 try again later"))
			}
			return nil
		}
	}
	q.Handle("mail", work(30*time.Millisecond, 0.04))
	q.Handle("thumbnail", work(160*time.Millisecond, 0))
	q.Handle("survey", work(time.Second, 0))
	q.Handle("report", work(time.Second, 0))
	q.Handle("rates", work(time.Second, 0))
	q.Handle("webhook", func(_ context.Context, a *durable.Attempt) error {
		return durable.RetryAfter(time.Second, fmt.Errorf(`Post "https://hooks.example.com/orders": dial tcp 203.0.113.7:443: connect: connection refused (attempt %d)`, a.Number))
	})
	q.Handle("invoice", func(context.Context, *durable.Attempt) error {
		return durable.Discard(errors.New("invoice A-20455: the customer has no VAT number, and the order is from another country of the union"))
	})
}

// sell adds jobs, in waves, until ctx ends.
func sell(ctx context.Context, q *durable.Queue) {
	for i := 0; ctx.Err() == nil; i++ {
		for range 1 + int(5*(1+math.Sin(float64(i)/120))) + rand.N(3) {
			q.Add(ctx, durable.Job{Kind: "mail", After: rand.N(time.Second)})
		}
		if i%3 == 0 {
			q.Add(ctx, durable.Job{Kind: "thumbnail", Lane: fmt.Sprint("customer ", rand.N(3))})
		}
		time.Sleep(40 * time.Millisecond)
	}
}

// The picture shows a shop's jobs two minutes after the start. Without -admin-picture the
// tree stays as it is, and the test only sees that the page shows them.
func TestAdminPicture(t *testing.T) {
	tb, q := newTab(t), shop(t)
	h := admin.NewHandler(q, writable...)
	s := serveAdmin(t, h)
	s.replace("workers", func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		var workers []admin.Worker
		json.Unmarshal(answer.Body.Bytes(), &workers)
		for i := range workers {
			workers[i].Host, workers[i].Process = fmt.Sprintf("shop-%d", i+1), 1 // and not where the picture was taken
		}
		answering(workers)(w, r)
	})
	tb.resize(1280, 1200)
	tb.media("prefers-color-scheme:light")
	tb.open(s.url())
	tb.until(`$("jobs").children.length === 3 && $("schedules").children.length === 3 && $("backlog").children.length > 0`)
	if *adminPicture == "" {
		return
	}
	time.Sleep(118*time.Second - time.Duration(eval[float64](tb, `performance.now()`))*time.Millisecond)
	tb.do(chromedp.Evaluate[chromedp.Void](`setText($("where"), "shop.example.com")`))
	tb.shoot(*adminPicture, `$("jobs-section").getBoundingClientRect().bottom + scrollY + 12`)
}
