package debug

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// JSON has no years after 9999. The answer says so, and is not empty.
func TestJSONOfALateYear(t *testing.T) {
	w := timingwheel.New(timingwheel.WithManualClock(time.Date(9999, 12, 31, 23, 59, 0, 0, time.UTC)))
	defer w.Stop()
	h := NewHandler()
	h.Add("a", w)
	require.Equal(t, 200, get(h, "/?format=json").Code)
	h.Remove("a")
	h.Add("a", w)
	w.AfterFunc(90*time.Second, func() {})
	answer := get(h, "/?format=json")
	require.Equal(t, 500, answer.Code)
	require.Contains(t, answer.Body.String(), "year outside of range")
	require.Contains(t, string(h.event("a")), `"next":[{"in":90000000000,"n":1}]`)
}

// The next deadlines of a wheel in virtual time are as far off as its own clock says.
func TestNextInVirtualTime(t *testing.T) {
	for _, year := range []int{1990, 2990} {
		w := timingwheel.New(timingwheel.WithManualClock(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)))
		defer w.Stop()
		w.AfterFunc(90*time.Second, func() {})
		h := NewHandler()
		h.Add("a", w)
		require.Contains(t, get(h, "/?format=text").Body.String(), "\nnext: 1 in 1m30s\n")
		require.Contains(t, string(h.event("a")), `"next":[{"in":90000000000,"n":1}]`)
	}
}
