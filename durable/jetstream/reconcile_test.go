package jetstream

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// A comparison reports the lost claims that it has found, though the status of another one cannot be read.
func TestLostClaimsBesideADamagedOne(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	var lost []driver.Ref
	w := newWorker(newEngine("default", []*part{p}, nil), driver.WorkConfig{
		Name: "w", Lease: time.Minute, Notify: func(n driver.Notice) { lost = append(lost, n.Lost...) },
	})
	own := &w.reconciler.claims[0]
	damaged, gone := location{id: "damaged"}, location{id: "gone"}
	require.NoError(t, p.Write(t.Context(), stream.Write{Subject: p.statusSubject(damaged), Data: []byte("?")}))
	own.all[1] = ownClaim{at: damaged, seq: 1 << 40, ref: "damaged"}
	own.all[2] = ownClaim{at: gone, seq: 1 << 40, ref: "gone"}
	for len(own.all) > 1 { // they are compared in any order
		_, err := w.reconciler.compare(t.Context(), p, true)
		require.ErrorIs(t, err, driver.ErrStorage)
	}
	require.Equal(t, []driver.Ref{"gone"}, lost)
}
