package dropin_test

import (
	"sync"
	"testing"
	std "time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/dropin/context"
	"github.com/tickwheel/tickwheel/dropin/time"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// manual is the wheel of this process: SetDefault may be called once.
var manual = sync.OnceValue(func() *timingwheel.TimingWheel {
	w := timingwheel.New(timingwheel.WithManualClock(std.Unix(0, 0)))
	timingwheel.SetDefault(w)
	return w
})

// The default wheel has a manual clock. Advance moves the timers on the wheel; timers of package
// time follow the real clock.
func TestDefaultWithManualClock(t *testing.T) {
	w := manual()
	ran := false
	time.AfterFunc(time.Hour, func() { ran = true })
	timer := time.NewTimer(time.Hour)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()

	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	<-ticker.C
	<-time.After(time.Millisecond)
	time.Sleep(time.Millisecond)
	require.WithinDuration(t, std.Now(), time.Now(), time.Minute)

	w.Advance(time.Hour - time.Millisecond)
	require.False(t, ran)
	require.Empty(t, timer.C)
	require.NoError(t, ctx.Err())
	w.Advance(time.Millisecond)
	require.True(t, ran)
	require.Len(t, timer.C, 1)
	require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
}
