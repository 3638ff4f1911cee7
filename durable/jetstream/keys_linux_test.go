package jetstream

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// BenchmarkDebounce compares the process's CPU, with the server in it, of an Add that pushes a job
// back with that of an Add of a key that is free. The two alternate, and the ratio is of medians.
func BenchmarkDebounce(b *testing.B) {
	p := newPart(b)
	const keys, rounds = 10, 61
	n := 0
	round := func(onKey driver.OnKey, name string) float64 {
		began := cpu(b)
		for k := range keys {
			n++
			now := p.Now().Truncate(time.Microsecond)
			due := now.Add(time.Hour)
			r := driver.Record{ID: fmt.Sprint("job", n), Due: due, Born: now, Job: driver.Job{
				Kind: "k", Key: fmt.Sprint(name, k), OnKey: onKey, Payload: make([]byte, 100), MaxAttempts: 1, At: due,
			}}
			require.NoError(b, p.insertOne(b.Context(), r))
		}
		return float64(cpu(b)-began) / keys / 1000
	}
	round(driver.KeyLater, "later")
	for b.Loop() {
		var free, later []float64
		for i := range rounds {
			free = append(free, round(driver.KeyRefuse, fmt.Sprint(n, "free", i)))
			later = append(later, round(driver.KeyLater, "later"))
		}
		slices.Sort(free)
		slices.Sort(later)
		b.ReportMetric(free[rounds/2], "us/keyed")
		b.ReportMetric(later[rounds/2], "us/debounced")
		b.ReportMetric(later[rounds/2]/free[rounds/2], "ratio")
	}
}

// cpu returns the CPU time of the process.
func cpu(t testing.TB) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
