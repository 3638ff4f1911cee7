package main

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// beside is what package time or context makes, or what a wheel makes instead: tickers,
// contexts. Timers that run a function can be pending beside it.
type beside[T any] struct {
	timers timers
	make   T
}

// both returns the two of them.
func both[T any](standardName string, std T, wheelName string, onWheel func(w *timingwheel.TimingWheel) T) []subject[beside[T]] {
	return []subject[beside[T]]{
		{standardName, func(b *testing.B) beside[T] {
			t := standard()
			b.Cleanup(t.stop)
			return beside[T]{t, std}
		}},
		{wheelName, func(b *testing.B) beside[T] {
			w := newWheel(b)
			return beside[T]{schedule(w), onWheel(w)}
		}},
	}
}

type withTimeout = func(context.Context, time.Duration) (context.Context, context.CancelFunc)

func contexts() []subject[beside[withTimeout]] {
	return both("context.WithTimeout", context.WithTimeout,
		"wheel.WithTimeout", func(w *timingwheel.TimingWheel) withTimeout { return w.WithTimeout })
}

// BenchmarkContext makes a context with a timeout and cancels it: below
// context.Background(), below one parent that all contexts share and that can be canceled
// (parent=shared), and below a parent of each one's own, as a request of an http.Server has
// (parent=own; making and ending that parent is included). With use=done it asks for the
// channel in between. With use=child it derives a context and asks that one for its channel,
// as http.Transport, database/sql and grpc do. With a million pending timers, these run a
// function. CPU includes collections.
//
// The floor below a parent that can be canceled is the notice of that parent's end. Package context
// puts its own contexts into the parent's list. Any other context must call context.AfterFunc,
// which makes two allocations. With parent=own and use=child that makes 18 allocations for package
// context's 15: package context makes 13 of them, for the parent, the inner context and the one that
// is derived, the notice is two, WithTimeout makes two, and the function that takes the derived one
// out is one.
func BenchmarkContext(b *testing.B) {
	eachSize(b, []int{0, 1_000_000}, func(b *testing.B, n int) {
		for _, parent := range []string{"background", "shared", "own"} {
			for _, use := range []string{"none", "done", "child"} {
				b.Run("parent="+parent+"/use="+use, func(b *testing.B) {
					compare(b, contexts(), func(b *testing.B, s beside[withTimeout]) {
						fill(s.timers, n)
						useContexts(b, s.make, parent, use)
					})
				})
			}
		}
	})
}

func useContexts(b *testing.B, with withTimeout, parent, use string) {
	r, above := random(1), context.Background()
	if parent == "shared" {
		shared, cancel := context.WithCancel(above)
		defer cancel()
		above = shared
	}
	loop(b, func() {
		above := above
		if parent == "own" {
			own, end := context.WithCancel(above)
			defer end()
			above = own
		}
		ctx, cancel := with(above, farOff(r))
		defer cancel()
		switch use {
		case "done":
			ctx.Done()
		case "child":
			child, cancelChild := context.WithCancel(ctx)
			child.Done()
			cancelChild()
		}
	})
}

// BenchmarkContextCall calls Err and Done of one context again and again.
func BenchmarkContextCall(b *testing.B) {
	for _, call := range []string{"Err", "Done"} {
		b.Run("call="+call, func(b *testing.B) {
			compare(b, contexts(), func(b *testing.B, s beside[withTimeout]) {
				parent, cancelParent := context.WithCancel(context.Background())
				defer cancelParent()
				ctx, cancel := s.make(parent, time.Hour)
				defer cancel()
				if call == "Err" {
					loop(b, func() { _ = ctx.Err() })
				} else {
					loop(b, func() { _ = ctx.Done() })
				}
			})
		})
	}
}

// BenchmarkContextParent cancels a parent of 100,000 contexts, after a call of Done of each:
// the unit parent-ns/context. Then it cancels each: cpu-ns/context is of both.
func BenchmarkContextParent(b *testing.B) {
	n := size(100_000, 100)
	compare(b, contexts(), func(b *testing.B, s beside[withTimeout]) {
		once(b, func() {
			parent, cancelParent := context.WithCancel(context.Background())
			cancels := make([]context.CancelFunc, n)
			for i := range cancels {
				var ctx context.Context
				ctx, cancels[i] = s.make(parent, time.Hour)
				ctx.Done()
			}
			measure.Settle()
			before := measure.Now()
			cancelParent()
			b.ReportMetric(float64(measure.Now().CPU-before.CPU)/float64(n), "parent-ns/context")
			for _, cancel := range cancels {
				cancel()
			}
			reportCPU(b, before, measure.Now(), n, "context")
		})
	})
}

// BenchmarkContextServer is a whole HTTP server with clients in the same process. Each request
// has a context with a timeout of 5 s, and calls Done.
func BenchmarkContextServer(b *testing.B) {
	compare(b, contexts(), func(b *testing.B, s beside[withTimeout]) {
		listener := listen(b)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := s.make(r.Context(), 5*time.Second)
			defer cancel()
			select {
			case <-ctx.Done():
			default:
				w.Header()["Date"] = nil
				io.WriteString(w, "ok")
			}
		})}
		go server.Serve(listener)
		defer server.Close()
		const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nok"
		b.ReportAllocs()
		ask(b, listener, 4, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", len(answer))
	})
}
