// Package otel makes traces and metrics of durable jobs, by OpenTelemetry: a span where a
// job is added, and one for each attempt, which is linked to it, wherever and however much
// later that is.
//
//	q, err := durable.Open(ctx, engine, durable.WithMiddleware(otel.Middleware()))
//
// It is a module of its own, so durable does not depend on OpenTelemetry.
//
// # Spans
//
// Add and AddMany are a span of kind producer, "add <kind>", however many jobs they add.
// Its context travels in the Meta of each job, under the names of the propagator, such as
// traceparent. It is left out of a job whose Meta would become larger than durable takes.
//
// Each attempt is a span of kind consumer, "run <kind>", a trace of its own, with a link
// to the span of Add. A job may run days later, and several times: as a child it would
// keep a trace open for as long. The handler's context has the span. If the handler
// returns an error, panics or ends its goroutine, the span has the status Error; a snooze
// does not set it.
//
// Jobs that do not go through Add have no such span: occurrences of schedules and, if
// [Inject] is not called for them, jobs that an engine adds in a transaction.
//
// # Metrics
//
//	messaging.client.operation.duration  histogram, s   of Add and AddMany
//	messaging.client.sent.messages       counter        jobs that were given to Add
//	messaging.client.consumed.messages   counter        attempts that have begun
//	messaging.process.duration           histogram, s   of handlers
//
// Names and attributes are those of the semantic conventions for messaging, version 1.43.0, which
// is the schema URL of the tracer and the meter. They are in development there, so a later version
// may have others: this package changes them with its pinned version only. messaging.system is
// "tickwheel", messaging.operation.name "add" or "run", messaging.destination.name the kind,
// and error.type the type of an error. Spans have messaging.message.id, the Ref, too.
//
// Two attributes are this package's own, of the spans of attempts: tickwheel.attempt, its number,
// and tickwheel.lateness, in seconds by this machine's clock.
//
// On PostgreSQL each job's context is in the index on Meta, which takes room and time.
package otel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tickwheel/tickwheel/durable"
)

// scope names what makes the spans and metrics.
const scope = "github.com/tickwheel/tickwheel/durable/otel"

// schema is the version of the semantic conventions that the names follow.
const schema = "https://opentelemetry.io/schemas/1.43.0"

// Option sets the providers and the propagator of [Middleware] and [Inject].
type Option func(*config)

type config struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
}

// WithTracerProvider sets where spans go. The default is the global one. Middleware panics
// on nil.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) {
		if p == nil {
			panic("otel: WithTracerProvider(nil)")
		}
		c.tracers = p
	}
}

// WithMeterProvider sets where metrics go. The default is the global one. Middleware panics
// on nil.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) {
		if p == nil {
			panic("otel: WithMeterProvider(nil)")
		}
		c.meters = p
	}
}

// WithPropagator sets how a context is written into Meta and read from it. The default is
// that of the W3C (traceparent and tracestate), not the global one: all releases of a
// service must be able to read stored jobs. Middleware and Inject panic on nil.
func WithPropagator(p propagation.TextMapPropagator) Option {
	return func(c *config) {
		if p == nil {
			panic("otel: WithPropagator(nil)")
		}
		c.propagator = p
	}
}

func newConfig(opts []Option) *config {
	c := &config{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider(), propagator: propagation.TraceContext{}}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("otel: Option %d is nil", i))
		}
		opt(c)
	}
	return c
}

// instruments are what one Middleware has.
type instruments struct {
	*config
	tracer                 trace.Tracer
	sent, consumed         metric.Int64Counter
	addDuration, runLength metric.Float64Histogram
}

// Middleware returns a middleware that makes spans and metrics of a Queue. An instrument
// that the meter provider refuses is reported to OpenTelemetry's error handler, and does
// nothing.
func Middleware(opts ...Option) durable.Middleware {
	c := newConfig(opts)
	in := &instruments{config: c, tracer: c.tracers.Tracer(scope, trace.WithSchemaURL(schema))}
	meter := c.meters.Meter(scope, metric.WithSchemaURL(schema))
	var errs [4]error
	in.sent, errs[0] = meter.Int64Counter("messaging.client.sent.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Jobs that were given to Add."))
	in.consumed, errs[1] = meter.Int64Counter("messaging.client.consumed.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Attempts that have begun."))
	in.addDuration, errs[2] = meter.Float64Histogram("messaging.client.operation.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("How long Add and AddMany take."))
	in.runLength, errs[3] = meter.Float64Histogram("messaging.process.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("How long handlers take."))
	if err := errors.Join(errs[:]...); err != nil {
		otel.Handle(err)
	}
	return durable.Middleware{Add: in.add, Handle: in.handle}
}

// buckets are those that the conventions name.
var buckets = metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

// Inject writes the span of a context into the Meta of a job, for jobs that do not go
// through Add: those that an engine adds in a transaction. It changes no map that the job
// has, and nothing if Meta would become larger than durable takes.
func Inject(ctx context.Context, j durable.Job, opts ...Option) durable.Job {
	newConfig(opts).inject(ctx, &j)
	return j
}

func (c *config) inject(ctx context.Context, j *durable.Job) {
	meta := maps.Clone(j.Meta)
	if meta == nil {
		meta = map[string]string{}
	}
	c.propagator.Inject(ctx, propagation.MapCarrier(meta))
	size := 0
	for name, value := range meta {
		size += len(name) + len(value)
	}
	if size <= durable.MaxMeta && len(meta) > 0 {
		j.Meta = meta
	}
}

func attributes(operation, kind string) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("messaging.system", "tickwheel"), attribute.String("messaging.operation.name", operation),
	}
	if kind != "" {
		all = append(all, attribute.String("messaging.destination.name", kind))
	}
	return all
}

func (in *instruments) add(next durable.AddFunc) durable.AddFunc {
	return func(ctx context.Context, jobs []durable.Job) ([]durable.Ref, error) {
		began, kind := time.Now(), kindOf(jobs)
		attrs := attributes("add", kind)
		ctx, span := in.tracer.Start(ctx, nameOf("add", kind), trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithAttributes(attrs...), trace.WithAttributes(attribute.String("messaging.operation.type", "send")))
		defer span.End()
		if len(jobs) != 1 {
			span.SetAttributes(attribute.Int("messaging.batch.message_count", len(jobs)))
		}
		for i := range jobs {
			in.inject(ctx, &jobs[i])
		}
		refs, err := next(ctx, jobs)
		if len(refs) == 1 && refs[0] != "" {
			span.SetAttributes(attribute.String("messaging.message.id", string(refs[0])))
		}
		if err != nil {
			attrs = append(attrs, fail(span, err))
		}
		set := metric.WithAttributes(attrs...)
		in.sent.Add(ctx, int64(len(jobs)), set)
		in.addDuration.Record(ctx, time.Since(began).Seconds(), set)
		return refs, err
	}
}

// kindOf is the kind of jobs that are of one; "" if they are not.
func kindOf(jobs []durable.Job) string {
	for _, j := range jobs {
		if j.Kind != jobs[0].Kind {
			return ""
		}
	}
	if len(jobs) == 0 {
		return ""
	}
	return jobs[0].Kind
}

func nameOf(operation, kind string) string {
	if kind == "" {
		return operation
	}
	return operation + " " + kind
}

// fail makes an error the status of a span, and returns what metrics say of it. The methods of the
// error are the user's. If they fail, its type has to do.
func fail(span trace.Span, err error) attribute.KeyValue {
	name := fmt.Sprintf("%T", err)
	protect(func() { name = errorType(err) })
	kind := attribute.String("error.type", name)
	span.SetAttributes(kind)
	span.SetStatus(codes.Error, name) // in case that the text does not come
	protect(func() { span.SetStatus(codes.Error, err.Error()) })
	return kind
}

// protect ends a panic of f.
func protect(f func()) {
	defer func() { _ = recover() }()
	f()
}

// known are errors whose names say more than their types. Of an error that is several the
// first counts.
var known = []struct {
	err  error
	name string
}{
	{durable.ErrInvalid, "invalid"}, {durable.ErrExists, "exists"}, {durable.ErrFull, "full"}, {durable.ErrStorage, "storage"},
	{durable.ErrReadOnly, "read_only"},
	{durable.ErrUncertain, "uncertain"}, {durable.ErrClosed, "closed"}, {durable.ErrLeaseLost, "lease_lost"},
	{durable.ErrTimeout, "timeout"}, {context.DeadlineExceeded, "deadline_exceeded"}, {context.Canceled, "canceled"}, {errDied, "died"},
}

// errorType has few values, as metrics need it.
func errorType(err error) string {
	for _, k := range known {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	return fmt.Sprintf("%T", err)
}

// errDied is the error of a handler that has panicked or ended its goroutine.
var errDied = errors.New("the handler panicked, or ended its goroutine")

func (in *instruments) handle(next durable.Handler) durable.Handler {
	return func(ctx context.Context, a *durable.Attempt) error {
		began := time.Now()
		attrs := attributes("run", a.Job.Kind)
		producer := trace.SpanContextFromContext(in.propagator.Extract(context.Background(), propagation.MapCarrier(a.Job.Meta)))
		options := []trace.SpanStartOption{
			trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attrs...), trace.WithAttributes(
				attribute.String("messaging.operation.type", "process"), attribute.String("messaging.message.id", string(a.Ref)),
				attribute.Int("messaging.message.body.size", len(a.Job.Payload)), attribute.Int("tickwheel.attempt", a.Number),
				attribute.Float64("tickwheel.lateness", began.Sub(a.Due).Seconds())),
		}
		if producer.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: producer}))
		}
		ctx, span := in.tracer.Start(ctx, nameOf("run", a.Job.Kind), options...)
		in.consumed.Add(ctx, 1, metric.WithAttributes(attrs...))
		err := errDied
		defer span.End()
		defer func() { // also if the handler panics, which goes on
			if err != nil && !durable.IsSnooze(err) {
				attrs = append(attrs, fail(span, err))
			}
			in.runLength.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(attrs...))
		}()
		err = next(ctx, a)
		return err
	}
}
