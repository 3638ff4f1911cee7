package jetstream_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// A server may have a small max_payload. A job that does not fit is refused at once, by itself, and says so.
// An accepted job runs and ends, whatever its errors say.
func TestSmallMaxPayload(t *testing.T) {
	t.Parallel()
	srv := serveConf(t, `max_payload: 64KB
		jetstream { max_file_store: 1GB }`)
	e, err := jetstream.Connect(within(t), dial(t, srv))
	require.NoError(t, err)
	q, err := durable.Open(within(t), e)
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	soon := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		return ctx
	}
	large := make([]byte, 70<<10)
	for name, job := range map[string]durable.Job{
		"plain": {Kind: "k", Payload: large},
		"key":   {Kind: "k", Payload: large, Key: "key"},
		"meta":  {Kind: "k", Payload: make([]byte, 50<<10), Meta: map[string]string{"m": strings.Repeat("<", 4000)}},
	} {
		_, err = q.Add(soon(), job)
		require.ErrorIs(t, err, durable.ErrInvalid, name)
		require.NotErrorIs(t, err, durable.ErrUncertain, name)
	}
	jobs := make([]durable.Job, 40)
	for i := range jobs {
		jobs[i] = durable.Job{Kind: "other", After: time.Hour, Payload: make([]byte, 1000)}
	}
	jobs[17].Payload = make([]byte, 200<<10)
	refs, err := q.AddMany(soon(), jobs...)
	require.ErrorIs(t, err, durable.ErrInvalid)
	require.ErrorContains(t, err, "job 17:")
	require.NotContains(t, err.Error(), "job 0:")
	for i, ref := range refs {
		require.Equal(t, i == 17, ref == "", i)
	}
	err = q.SetSchedule(soon(), "s", "@every 1h", durable.Job{Kind: "k", Payload: large})
	require.ErrorIs(t, err, durable.ErrInvalid)
	_, err = q.Add(soon(), durable.Job{Kind: "other", Key: "signals", After: time.Hour, Signals: true, Payload: make([]byte, 30<<10)})
	require.NoError(t, err)
	_, err = q.Signal(soon(), "signals", make([]byte, 40<<10))
	require.ErrorIs(t, err, durable.ErrInvalid)
	ok, err := q.Signal(soon(), "signals", []byte("small"))
	require.True(t, ok && err == nil, err)

	// The largest that is accepted.
	var ref durable.Ref
	size := 64 << 10
	for ; ref == ""; size -= 64 {
		ref, err = q.Add(soon(), durable.Job{Kind: "k", Payload: make([]byte, size), MaxAttempts: 12, Lane: "lane", Timeout: time.Minute})
	}
	require.Greater(t, size, 60<<10)
	long := errors.New(strings.Repeat("<ä", 3000))
	q.Handle("k", func(context.Context, *durable.Attempt) error { return durable.RetryAfter(0, long) })
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(within(t))
	go func() { done <- q.Run(ctx) }()
	var info durable.Info
	require.Eventually(t, func() bool {
		info, err = q.Get(within(t), ref)
		return err == nil && info.State == durable.Dead
	}, patience, 20*time.Millisecond)
	require.Equal(t, 12, info.Attempt)
	require.NotEmpty(t, info.LastError)
	require.NoError(t, q.Redrive(soon(), ref))
	stop()
	require.NoError(t, <-done)
}

// A server whose max_payload does not even hold what the engine itself writes is refused.
func TestTinyMaxPayload(t *testing.T) {
	t.Parallel()
	srv := serveConf(t, `max_payload: 4KB
		jetstream { max_file_store: 1GB }`)
	_, err := jetstream.Connect(within(t), dial(t, srv))
	require.ErrorContains(t, err, "max_payload is 4096")
}
