package time_test

import (
	"testing"
	std "time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/dropin/context"
	"github.com/tickwheel/tickwheel/dropin/time"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// Nobody can stop the wheel of the process: the functions of others would never run. So whoever tries
// finds out, and all goes on, also what is pending.
func TestWheelCannotBeStopped(t *testing.T) {
	const sentence = "timingwheel: the default wheel cannot be stopped, others use it: stop a Group, or make a wheel of your own"
	w := timingwheel.Default()
	done := make(chan string, 10)
	pending := time.AfterFunc(20*time.Millisecond, func() { done <- "pending" })
	defer pending.Stop()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.PanicsWithValue(t, sentence, func() { w.Stop() })
	require.PanicsWithValue(t, sentence, func() { w.Shutdown(t.Context()) })
	require.PanicsWithValue(t, sentence, func() { w.Shutdown(ended) })

	time.AfterFunc(0, func() { done <- "at once" })
	require.ElementsMatch(t, []string{"at once", "pending"}, []string{<-done, <-done}) // 20 ms may be over by now
	require.False(t, pending.Reset(time.Millisecond))
	require.Equal(t, "pending", <-done)
	<-time.NewTimer(time.Millisecond).C
	<-time.After(time.Millisecond)
	time.Sleep(time.Millisecond)
	ticker := time.NewTicker(time.Millisecond)
	<-ticker.C
	ticker.Stop()
	ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	<-ctx.Done()

	w.Sleep(time.Millisecond)
	own := w.NewTicker(time.Millisecond)
	<-own.C
	own.Stop()
	group := timingwheel.NewGroup(w)
	group.AfterFunc(time.Millisecond, func() { done <- "group" })
	require.Equal(t, "group", <-done)
	require.NoError(t, group.StopWait(t.Context()))
	job, err := w.ScheduleAtFixedRate(0, time.Hour, func() { done <- "job" })
	require.NoError(t, err)
	require.Equal(t, "job", <-done)
	job.Stop()
}

// AfterFunc and NewTimer are on the wheel of the process, and nothing else is: a ticker, or a
// channel of After, that nobody receives from is to cost nothing.
func TestOnTheWheel(t *testing.T) {
	w := timingwheel.Default()
	for _, c := range []struct {
		name  string
		start func() (stop func())
		adds  int
	}{
		{"AfterFunc", func() func() { timer := time.AfterFunc(time.Hour, func() {}); return func() { timer.Stop() } }, 1},
		{"NewTimer", func() func() { timer := time.NewTimer(time.Hour); return func() { timer.Stop() } }, 1},
		{"NewTicker", func() func() { return time.NewTicker(time.Hour).Stop }, 0},
		{"Tick", func() func() { time.Tick(time.Hour); return func() {} }, 0},
		{"After", func() func() { time.After(time.Hour); return func() {} }, 0},
	} {
		before := w.Stats().Scheduled
		stop := c.start()
		require.Equal(t, c.adds, w.Len(), c.name)
		stop()
		require.Zero(t, w.Len(), c.name)
		time.Sleep(std.Millisecond)
		require.EqualValues(t, c.adds, w.Stats().Scheduled-before, "%s, and then Sleep", c.name)
	}
	var ticker *std.Ticker = time.NewTicker(time.Hour) // of the same type
	ticker.Stop()
	require.Nil(t, time.Tick(0))
}

// No timer is early, by the clock of either package.
func TestNeverEarly(t *testing.T) {
	const d = 3 * time.Millisecond
	fired := make(chan time.Time)
	for name, wait := range map[string]func(){
		"AfterFunc": func() { time.AfterFunc(d, func() { fired <- time.Now() }); <-fired },
		"NewTimer":  func() { <-time.NewTimer(d).C },
		"After":     func() { <-time.After(d) },
		"Sleep":     func() { time.Sleep(d) },
		"NewTicker": func() { ticker := time.NewTicker(d); defer ticker.Stop(); <-ticker.C },
	} {
		start := std.Now()
		wait()
		require.GreaterOrEqual(t, std.Since(start), d, name)
	}
}

// Names without timers are forwarded to the standard library.
func TestForwarded(t *testing.T) {
	const text = "2026-02-03T04:05:06Z"
	at := time.Date(2026, time.February, 3, 4, 5, 6, 0, time.UTC)
	for _, parse := range []func() (time.Time, error){
		func() (time.Time, error) { return time.Parse(time.RFC3339, text) },
		func() (time.Time, error) { return time.ParseInLocation(time.RFC3339, text, time.Local) },
	} {
		parsed, err := parse()
		require.NoError(t, err)
		require.True(t, at.Equal(parsed))
	}
	require.Equal(t, std.Date(2026, 2, 3, 4, 5, 6, 0, std.UTC), at)
	require.True(t, at.Equal(time.Unix(at.Unix(), 0)))
	require.True(t, at.Equal(time.UnixMilli(at.UnixMilli())))
	require.True(t, at.Equal(time.UnixMicro(at.UnixMicro())))
	require.Positive(t, time.Since(at.AddDate(-9, 0, 0)))
	require.Negative(t, time.Until(at.AddDate(-9, 0, 0)))
	d, err := time.ParseDuration("1h2m")
	require.NoError(t, err)
	require.Equal(t, time.Hour+2*time.Minute, d)
	require.Equal(t, std.FixedZone("here", 3600).String(), time.FixedZone("here", 3600).String())
	utc, err := time.LoadLocation("UTC")
	require.NoError(t, err)
	require.Same(t, std.UTC, utc)
	_, err = time.LoadLocationFromTZData("bad", nil)
	require.Error(t, err)
}
