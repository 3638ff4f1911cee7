package jetstream_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// The status of a job that left its far bucket goes when its near bucket is over, though
// nothing was ever in there.
func TestStatusesOfEmptyBuckets(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	q := count(t, s.Open(t))
	js, err := s.connect(t).JetStream(nats.MaxWait(patience))
	require.NoError(t, err)
	statuses := func() int {
		info, err := js.StreamInfo("TW_default_0", &nats.StreamInfoRequest{SubjectsFilter: "TW_default_0.c.>"})
		require.NoError(t, err)
		return len(info.State.Subjects)
	}
	for after := 6 * time.Second; statuses() < 10; after *= 2 { // the first bucket may be empty and gone before the last job
		require.Less(t, after, patience)
		for range 10 {
			ref, err := q.Add(within(t), durable.Job{Kind: "k", After: after})
			require.NoError(t, err)
			ok, err := q.Cancel(within(t), ref)
			require.NoError(t, err)
			require.True(t, ok)
		}
	}
	require.Eventually(t, func() bool { return statuses() == 0 }, patience, 50*time.Millisecond)
}
