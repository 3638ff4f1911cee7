package otel_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"

	"github.com/tickwheel/tickwheel/durable"
)

// Each name is one of the pinned version of the semantic conventions, or begins with "tickwheel.".
func TestNames(t *testing.T) {
	observe(t, func(t *testing.T, r *rig) {
		r.Handle("mail", func(_ context.Context, _ *durable.Attempt) error { return nil })
		_, err := r.AddMany(t.Context(), durable.Job{Kind: "mail"}, durable.Job{Kind: "mail"})
		require.NoError(t, err)
		_, err = r.Add(t.Context(), durable.Job{Kind: "mail"})
		require.NoError(t, err)
		r.run(t, time.Second)

		known := map[attribute.Key]bool{}
		for _, k := range []attribute.Key{semconv.MessagingSystemKey, semconv.MessagingOperationNameKey, semconv.MessagingOperationTypeKey,
			semconv.MessagingDestinationNameKey, semconv.MessagingMessageIDKey, semconv.MessagingMessageBodySizeKey,
			semconv.MessagingBatchMessageCountKey, semconv.ErrorTypeKey} {
			known[k] = true
		}
		require.Len(t, r.spans.Ended(), 5)
		for _, s := range r.spans.Ended() {
			require.Equal(t, semconv.SchemaURL, s.InstrumentationScope().SchemaURL)
			for _, a := range s.Attributes() {
				require.True(t, known[a.Key] || strings.HasPrefix(string(a.Key), "tickwheel."), a.Key)
			}
		}
		var all metricdata.ResourceMetrics
		require.NoError(t, r.metrics.Collect(t.Context(), &all))
		require.Len(t, all.ScopeMetrics, 1)
		require.Equal(t, semconv.SchemaURL, all.ScopeMetrics[0].Scope.SchemaURL)
		var names []string
		for _, m := range all.ScopeMetrics[0].Metrics {
			names = append(names, m.Name)
		}
		require.ElementsMatch(t, []string{messagingconv.ClientOperationDuration{}.Name(), messagingconv.ClientSentMessages{}.Name(),
			messagingconv.ClientConsumedMessages{}.Name(), messagingconv.ProcessDuration{}.Name()}, names)
	})
}
