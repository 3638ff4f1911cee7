package time_test

import (
	"testing"
	std "time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/dropin/time"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// What starts a timer puts it on the wheel of the process.
func TestOnTheWheel(t *testing.T) {
	w := timingwheel.Default()
	onTheWheel := func(start func() (stop func())) {
		t.Helper()
		before := w.Len()
		stop := start()
		require.Equal(t, before+1, w.Len())
		stop()
		require.Equal(t, before, w.Len())
	}
	onTheWheel(func() func() {
		timer := time.AfterFunc(time.Hour, func() {})
		return func() { require.True(t, timer.Stop()) }
	})
	onTheWheel(func() func() {
		timer := time.NewTimer(time.Hour)
		return func() { require.True(t, timer.Stop()) }
	})
	onTheWheel(func() func() { return time.NewTicker(time.Hour).Stop })
	onTheWheel(func() func() {
		c := time.After(20 * time.Millisecond)
		return func() { <-c }
	})
	onTheWheel(func() func() {
		before, woken := w.Len(), make(chan bool)
		go func() { time.Sleep(50 * time.Millisecond); close(woken) }()
		require.Eventually(t, func() bool { return w.Len() > before }, 30*time.Second, std.Millisecond)
		return func() { <-woken }
	})

	before := w.Len()
	require.Nil(t, time.Tick(0))
	require.NotNil(t, time.Tick(time.Hour))
	require.Equal(t, before+1, w.Len(), "for good: nothing ends it")
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

// What is not about timers is the standard library's.
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
