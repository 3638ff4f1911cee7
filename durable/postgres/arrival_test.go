package postgres

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// Polls are as frequent as without notifications, unless echoes of late say that all that is announced arrives. A short
// lease, and a job that was released, make them more frequent, too.
func TestPollsWhileNotificationsArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const often = 200 * time.Millisecond
		w := &worker{limiter: &limiter{announcer: &announcer{pollEvery: often}}, c: driver.WorkConfig{Lease: time.Minute}}
		f := newFetcher(w)
		f.listener = &listener{}
		require.Equal(t, often, f.pollAfter(), "nothing has arrived")
		f.listener.arrival.echoed(false)
		require.Equal(t, often, f.pollAfter(), "those of transactions do not")
		for range 3 {
			f.listener.arrival.echoed(true)
			time.Sleep(echoEvery + echoLate - 1)
			require.Equal(t, everyQuietPoll, f.pollAfter())
		}
		time.Sleep(time.Nanosecond)
		require.Equal(t, often, f.pollAfter(), "no echo comes any more")
		f.listener.arrival.echoed(true)
		f.frequent.extend(time.Second)
		require.Equal(t, often, f.pollAfter(), "a job was released")
		time.Sleep(time.Second)
		require.Equal(t, everyQuietPoll, f.pollAfter())
		f.c.Lease = 9 * time.Second
		require.Equal(t, f.c.Lease/leaseFactor, f.pollAfter())
		f.listener.arrival.ended()
		require.Equal(t, often, f.pollAfter(), "the connection has ended")
	})
}
