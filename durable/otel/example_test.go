package otel_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/memory"
	"github.com/tickwheel/tickwheel/durable/otel"
)

// The run of a job is a trace of its own, with a link to the span that has added the job. In a
// program the spans go to a collector, and the provider is the global one.
func ExampleMiddleware() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	spans := tracetest.NewSpanRecorder()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	clock := memory.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	q, err := durable.Open(ctx, memory.New(clock).Open(), durable.WithLogger(slog.New(slog.DiscardHandler)),
		durable.WithMiddleware(otel.Middleware(otel.WithTracerProvider(tracers))))
	if err != nil {
		panic(err)
	}
	defer q.Close()
	q.Handle("mail", func(context.Context, *durable.Attempt) error { return nil })
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	if _, err := q.Add(ctx, durable.Job{Kind: "mail", After: time.Hour}); err != nil {
		panic(err)
	}
	if err := clock.Advance(ctx, time.Hour); err != nil {
		panic(err)
	}
	stop()
	if err := <-done; err != nil { // the run has ended
		panic(err)
	}
	add, run := spans.Ended()[0], spans.Ended()[1]
	fmt.Println(add.Name())
	fmt.Println(run.Name(), run.Links()[0].SpanContext.SpanID() == add.SpanContext().SpanID())
	// Output:
	// add mail
	// run mail true
}
