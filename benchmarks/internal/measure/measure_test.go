package measure

import (
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	values := make([]time.Duration, 1000)
	for i := range values {
		values[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		p    float64
		want time.Duration
	}{{0, 1}, {0.05, 1}, {0.1, 1}, {0.11, 2}, {50, 500}, {99, 990}, {99.9, 999}, {99.91, 1000}, {100, 1000}} {
		if got := Percentile(values, c.p); got != c.want {
			t.Errorf("the %vth percentile is %d, want %d", c.p, got, c.want)
		}
	}
	if got := Percentile([]time.Duration{7}, 99.9); got != 7 {
		t.Errorf("of a single value: %d, want it", got)
	}
}

func TestEarly(t *testing.T) {
	if got := Early([]time.Duration{-3, -1, 0, 5}); got != 50 {
		t.Errorf("%v %% are early, want 50: on time is not early", got)
	}
}

func TestUsageOfWork(t *testing.T) {
	before := Now()
	var kept [][]byte
	for time.Since(before.Time) < 50*time.Millisecond || Collections() == before.Collections {
		kept = append(kept[:0], make([]byte, 10_000))
	}
	after := Now()
	if cpu := after.CPU - before.CPU; cpu <= 0 {
		t.Errorf("computing took %v of processor time", cpu)
	}
	n := after.Allocs - before.Allocs
	if bytes := after.Bytes - before.Bytes; n == 0 || bytes < n*1000 {
		t.Errorf("%d allocations of %d bytes in all, want at least 1000 each", n, bytes)
	}
	if after.Collections <= before.Collections || Collections() < after.Collections {
		t.Errorf("%d collections before and %d after, and then %d", before.Collections, after.Collections, Collections())
	}
	before = CPU()
	for range 20 {
		Sleep(2 * time.Millisecond)
	}
	if slept := time.Since(before.Time); slept < 40*time.Millisecond {
		t.Errorf("sleeping 20 times for 2ms took %v", slept)
	}
	if switches := CPU().Voluntary - before.Voluntary; switches < 10 {
		t.Errorf("sleeping 20 times took %d context switches", switches)
	}
	if len(kept[0]) != 10_000 {
		t.Error("unreachable, and keeps the allocation")
	}
}

func TestHeapBytes(t *testing.T) {
	before := HeapBytes()
	kept := make([]byte, 10<<20)
	if grown := HeapBytes() - before; grown < 9<<20 {
		t.Errorf("10 MiB have added %v bytes", grown)
	}
	kept[0] = 1
}
