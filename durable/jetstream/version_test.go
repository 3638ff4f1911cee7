package jetstream_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// setVersion writes a version into the metadata of the store's stream, or removes it.
func setVersion(t *testing.T, s *store, version string) {
	js, err := natsjs.New(s.connect(t))
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), "TW_default_0")
	require.NoError(t, err)
	config := stream.CachedInfo().Config
	delete(config.Metadata, "tickwheel-version")
	if version != "" {
		config.Metadata["tickwheel-version"] = version
	}
	_, err = js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
}

// A store of a newer version is refused, and one of an older version is read and made one
// of this: jobs and claims that are there run.
func TestVersions(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	old, err := durable.Open(t.Context(), s.Open(t))
	require.NoError(t, err)
	refs, err := old.AddMany(t.Context(), durable.Job{Kind: "k"}, durable.Job{Kind: "k", After: time.Second})
	require.NoError(t, err)
	setVersion(t, s, "")
	require.NoError(t, old.Close())

	q, err := durable.Open(t.Context(), s.Open(t))
	require.NoError(t, err)
	defer q.Close()
	js, err := natsjs.New(s.connect(t))
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), "TW_default_0")
	require.NoError(t, err)
	require.Equal(t, "6", stream.CachedInfo().Config.Metadata["tickwheel-version"])
	ran := make(chan durable.Ref, 10)
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error { ran <- a.Ref; return nil })
	done := make(chan error, 1)
	go func() { done <- q.Run(t.Context()) }()
	require.ElementsMatch(t, refs, []durable.Ref{<-ran, <-ran})

	// A newer one comes: who is at work ends, and nobody of this version begins.
	setVersion(t, s, "7")
	require.ErrorIs(t, <-done, durable.ErrVersion)
	_, err = jetstream.Connect(t.Context(), s.connect(t), s.opts...)
	require.ErrorIs(t, err, durable.ErrVersion)
	require.ErrorContains(t, err, "the stream has version 7, and this program knows 6")
	setVersion(t, s, "x")
	_, err = jetstream.Connect(t.Context(), s.connect(t), s.opts...)
	require.ErrorIs(t, err, durable.ErrStorage)
}

// Run ends when the connection is closed for good, as nats.go does when it has tried
// often enough to connect again.
func TestConnectionIsClosedForGood(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	nc, err := nats.Connect("", nats.InProcessServer(s.srv), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
	require.NoError(t, err)
	e, err := jetstream.Connect(t.Context(), nc, s.opts...)
	require.NoError(t, err)
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	defer q.Close()
	began, ended := make(chan bool), make(chan error, 1)
	q.Handle("k", func(ctx context.Context, _ *durable.Attempt) error {
		close(began)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil
	})
	_, err = q.Add(t.Context(), durable.Job{Kind: "k"})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- q.Run(t.Context()) }()
	<-began
	nc.Close()
	require.ErrorIs(t, <-done, durable.ErrClosed)
	require.ErrorIs(t, <-ended, durable.ErrClosed)
}
