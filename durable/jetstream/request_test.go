package jetstream

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A request that its messages use up to the last byte ends at once. The server does not say
// that it has ended.
func TestRequestUsedUp(t *testing.T) {
	p := newPart(t, soon)
	now := p.now().Truncate(time.Microsecond)
	b := p.nearOf(now)
	const jobs = 3
	for i := range jobs {
		r := recordAt(string(rune('a'+i)), now, now)
		require.NoError(t, p.write(t.Context(), write{subject: p.queueSubject(b, ""), data: encode(&r)}))
	}
	f := &feed{part: p, w: &worker{c: driver.WorkConfig{Lease: time.Minute}}}
	require.NoError(t, f.consumer(t.Context(), "c", p.queueSubject(b, "")))
	bytes := 0
	request := pullRequest{Batch: jobs, Expires: time.Minute, MaxBytes: share}
	got, err := p.pull("c", request, func(some []*nats.Msg) {
		for _, m := range some {
			bytes += m.Size()
			require.NoError(t, m.Respond([]byte("-NAK")))
		}
	})
	require.NoError(t, err)
	require.Equal(t, jobs, got)
	request.Batch, request.MaxBytes = 2*jobs, bytes // their sizes are the same again
	began := time.Now()
	got, err = p.pull("c", request, func([]*nats.Msg) {})
	require.NoError(t, err)
	require.Equal(t, jobs, got)
	require.Less(t, time.Since(began), request.Expires)
}
