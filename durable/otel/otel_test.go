package otel_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/enginetest"
	"github.com/tickwheel/tickwheel/durable/otel"
)

// rig is a Queue whose spans and metrics are recorded.
type rig struct {
	*durable.Queue
	spans   *tracetest.SpanRecorder
	tracers *sdktrace.TracerProvider
	metrics *metric.ManualReader
}

// observe runs f with a Queue on the engine in memory, in a bubble.
func observe(t *testing.T, f func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{spans: tracetest.NewSpanRecorder(), metrics: metric.NewManualReader()}
		r.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
		meters := metric.NewMeterProvider(metric.WithReader(r.metrics))
		q, err := durable.Open(t.Context(), enginetest.NewMemory().Open(t), durable.WithMiddleware(
			otel.Middleware(otel.WithTracerProvider(r.tracers), otel.WithMeterProvider(meters))))
		require.NoError(t, err)
		defer q.Close()
		r.Queue = q
		f(t, r)
	})
}

func (r *rig) run(t *testing.T, d time.Duration) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	time.Sleep(d)
	stop()
	require.NoError(t, <-done)
}

// named returns the spans of a name that have ended.
func (r *rig) named(name string) (found []sdktrace.ReadOnlySpan) {
	for _, s := range r.spans.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	return found
}

func attr(s sdktrace.ReadOnlySpan, name string) attribute.Value {
	for _, a := range s.Attributes() {
		if string(a.Key) == name {
			return a.Value
		}
	}
	return attribute.Value{}
}

// Each attempt is a span of its own that is linked to that of Add, days later, and the
// handler's context has it.
func TestSpans(t *testing.T) {
	observe(t, func(t *testing.T, r *rig) {
		var inside []trace.SpanContext
		r.Handle("mail", func(ctx context.Context, a *durable.Attempt) error {
			inside = append(inside, trace.SpanContextFromContext(ctx))
			if a.Number == 1 {
				return errors.New("no")
			}
			return nil
		})
		ctx, caller := r.tracers.Tracer("test").Start(t.Context(), "request")
		ref, err := r.Add(ctx, durable.Job{Kind: "mail", After: 48 * time.Hour, Payload: []byte("four"), Meta: map[string]string{"tag": "x"}})
		require.NoError(t, err)
		caller.End()
		info, err := r.Get(ctx, ref)
		require.NoError(t, err)
		require.Equal(t, "x", info.Job.Meta["tag"])
		r.run(t, 72*time.Hour)

		adds, runs := r.named("add mail"), r.named("run mail")
		require.Len(t, adds, 1)
		add := adds[0]
		require.Equal(t, trace.SpanKindProducer, add.SpanKind())
		require.Equal(t, caller.SpanContext().SpanID(), add.Parent().SpanID())
		require.Equal(t, string(ref), attr(add, "messaging.message.id").AsString())
		require.Equal(t, []string{"tickwheel", "add", "send", "mail"}, []string{
			attr(add, "messaging.system").AsString(), attr(add, "messaging.operation.name").AsString(),
			attr(add, "messaging.operation.type").AsString(), attr(add, "messaging.destination.name").AsString(),
		})
		require.Len(t, runs, 2)
		for i, s := range runs {
			require.Equal(t, trace.SpanKindConsumer, s.SpanKind())
			require.False(t, s.Parent().IsValid(), "a trace of its own")
			require.Len(t, s.Links(), 1)
			require.Equal(t, add.SpanContext().TraceID(), s.Links()[0].SpanContext.TraceID())
			require.Equal(t, add.SpanContext().SpanID(), s.Links()[0].SpanContext.SpanID())
			require.Equal(t, s.SpanContext(), inside[i])
			require.Equal(t, int64(i+1), attr(s, "tickwheel.attempt").AsInt64())
			require.Equal(t, int64(4), attr(s, "messaging.message.body.size").AsInt64())
			require.Equal(t, string(ref), attr(s, "messaging.message.id").AsString())
		}
		require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "no"}, runs[0].Status())
		require.Equal(t, "*errors.errorString", attr(runs[0], "error.type").AsString())
		require.Equal(t, codes.Unset, runs[1].Status().Code)
	})
}

// nilError and mute are errors whose methods fail.
type nilError struct{ text string }

func (e *nilError) Error() string   { return e.text }
func (e *nilError) Is(error) bool   { return e.text != "" }
func (e *nilError) Unwrap() []error { return []error{errors.New(e.text)} }

type mute struct{}

func (mute) Error() string { runtime.Goexit(); return "" }

// However a handler ends, its span ends, and says how; a snooze is no failure.
func TestEnds(t *testing.T) {
	observe(t, func(t *testing.T, r *rig) {
		snoozed := false
		for kind, h := range map[string]durable.Handler{
			"panic":  func(context.Context, *durable.Attempt) error { panic("oh") },
			"goexit": func(context.Context, *durable.Attempt) error { runtime.Goexit(); return nil },
			"snooze": func(context.Context, *durable.Attempt) error {
				if snoozed {
					return nil
				}
				snoozed = true
				return fmt.Errorf("later: %w", durable.Snooze(time.Second))
			},
			"discard": func(context.Context, *durable.Attempt) error { return durable.Discard(durable.ErrTimeout) },
			"nil":     func(context.Context, *durable.Attempt) error { return (*nilError)(nil) },
			"mute":    func(context.Context, *durable.Attempt) error { return durable.Discard(mute{}) },
		} {
			r.Handle(kind, h)
			_, err := r.Add(t.Context(), durable.Job{Kind: kind, MaxAttempts: 1})
			require.NoError(t, err)
		}
		r.run(t, time.Minute)
		for kind, want := range map[string]string{"panic": "died", "goexit": "died", "snooze": "", "discard": "timeout", "nil": "*otel_test.nilError", "mute": "*attempt.discarded"} {
			spans := r.named("run " + kind)
			require.NotEmpty(t, spans, kind)
			require.Equal(t, want, attr(spans[0], "error.type").AsString(), kind)
			require.Equal(t, want != "", spans[0].Status().Code == codes.Error)
		}
		require.Equal(t, int64(5), r.Stats().Dead)
		require.Equal(t, int64(1), r.Stats().Snoozed)
	})
}

// AddMany is one span; each of its jobs has its context. What Add refuses is its status.
func TestAddMany(t *testing.T) {
	observe(t, func(t *testing.T, r *rig) {
		refs, err := r.AddMany(t.Context(), durable.Job{Kind: "a", After: time.Hour}, durable.Job{Kind: "b", After: time.Hour})
		require.NoError(t, err)
		spans := r.named("add")
		require.Len(t, spans, 1)
		require.Equal(t, int64(2), attr(spans[0], "messaging.batch.message_count").AsInt64())
		for _, ref := range refs {
			info, err := r.Get(t.Context(), ref)
			require.NoError(t, err)
			require.Contains(t, info.Job.Meta["traceparent"], spans[0].SpanContext().TraceID().String())
		}
		_, err = r.Add(t.Context(), durable.Job{Kind: "bad\n"})
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.Equal(t, "invalid", attr(r.named("add bad\n")[0], "error.type").AsString())

		// A context that has no room is left out.
		full := map[string]string{"x": strings.Repeat("x", durable.MaxMeta-1)}
		ref, err := r.Add(t.Context(), durable.Job{Kind: "c", After: time.Hour, Meta: full})
		require.NoError(t, err)
		info, err := r.Get(t.Context(), ref)
		require.NoError(t, err)
		require.Equal(t, full, info.Job.Meta)
	})
}

// Inject is for what does not go through Add, and an attempt without a producer has no link.
func TestInject(t *testing.T) {
	observe(t, func(t *testing.T, r *rig) {
		ctx, span := r.tracers.Tracer("test").Start(t.Context(), "request")
		meta := map[string]string{"tag": "x"}
		j := otel.Inject(ctx, durable.Job{Kind: "k", Meta: meta})
		require.Len(t, meta, 1)
		require.Contains(t, j.Meta["traceparent"], span.SpanContext().TraceID().String())
		require.Nil(t, otel.Inject(t.Context(), durable.Job{Kind: "k"}).Meta)
		r.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
		require.NoError(t, r.SetSchedule(t.Context(), "s", "@every 1s", durable.Job{Kind: "k"}))
		r.run(t, 1500*time.Millisecond)
		require.Len(t, r.named("run k"), 1)
		require.Empty(t, r.named("run k")[0].Links())
	})
}

// The metrics are those of the conventions.
func TestMetrics(t *testing.T) {
	observe(t, func(t *testing.T, r *rig) {
		r.Handle("k", func(_ context.Context, a *durable.Attempt) error {
			time.Sleep(3 * time.Second)
			if a.Number == 1 {
				return durable.ErrTimeout
			}
			return nil
		})
		for range 3 {
			_, err := r.Add(t.Context(), durable.Job{Kind: "k"})
			require.NoError(t, err)
		}
		_, err := r.Add(t.Context(), durable.Job{Kind: "k", MaxAttempts: -1})
		require.ErrorIs(t, err, durable.ErrInvalid)
		r.run(t, time.Minute)
		var all metricdata.ResourceMetrics
		require.NoError(t, r.metrics.Collect(t.Context(), &all))
		got := map[string]float64{}
		for _, m := range all.ScopeMetrics[0].Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					got[series(m.Name, p.Attributes)] = float64(p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					got[series(m.Name, p.Attributes)+" count"] = float64(p.Count)
					got[series(m.Name, p.Attributes)+" sum"] = p.Sum
				}
			}
		}
		require.InDelta(t, 9, got["messaging.process.duration k run"+" sum"], 0.1)
		require.InDelta(t, 9, got["messaging.process.duration k run timeout"+" sum"], 0.1)
		for name, want := range map[string]float64{
			"messaging.client.sent.messages k add": 3, "messaging.client.sent.messages k add invalid": 1,
			"messaging.client.consumed.messages k run": 6, "messaging.process.duration k run count": 3,
			"messaging.process.duration k run timeout count": 3, "messaging.client.operation.duration k add count": 3,
			"messaging.client.operation.duration k add invalid count": 1,
		} {
			require.Equal(t, want, got[name], "%s of %v", name, got)
		}
	})
}

// series names what a data point is of.
func series(name string, set attribute.Set) string {
	for _, key := range []attribute.Key{"messaging.destination.name", "messaging.operation.name", "error.type"} {
		if v, ok := set.Value(key); ok {
			name += " " + v.AsString()
		}
	}
	return name
}

func TestWrongUse(t *testing.T) {
	require.PanicsWithValue(t, "otel: WithTracerProvider(nil)", func() { otel.Middleware(otel.WithTracerProvider(nil)) })
	require.PanicsWithValue(t, "otel: WithMeterProvider(nil)", func() { otel.Middleware(otel.WithMeterProvider(nil)) })
	require.PanicsWithValue(t, "otel: WithPropagator(nil)", func() { otel.Middleware(otel.WithPropagator(nil)) })
	require.PanicsWithValue(t, "otel: Option 1 is nil", func() { otel.Middleware(otel.WithTracerProvider(sdktrace.NewTracerProvider()), nil) })
}
