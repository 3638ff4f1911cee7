package durable

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/worker"
)

// Where an engine says since when the job was due, that is no longer than the worker is there.
func TestWorkerSince(t *testing.T) {
	began := time.UnixMilli(1_800_000_000_000)
	for since, want := range map[time.Time]time.Time{
		{}:                         {},
		began.Add(-time.Minute):    began,
		began.Add(time.Nanosecond): began.Add(time.Nanosecond),
	} {
		for _, label := range []string{"", "l", "a_b-c__d"} {
			w := workerOf(driver.WorkerInfo{Name: worker.NewName(began, label), Since: since})
			require.True(t, want.Equal(w.Since), "%v", w.Since)
			require.Equal(t, label, w.Label)
			require.Equal(t, os.Getpid(), w.Process)
		}
	}
}
