package main

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A short run has no violations. Its totals show that it did everything, on a slow machine in
// a longer run.
func TestSoak(t *testing.T) {
	d := 4 * time.Second
	if testing.Short() {
		d = time.Second
	}
	for missing := "all"; missing != ""; d *= 2 {
		require.Less(t, d, 5*time.Minute, "it has no %s", missing)
		var out strings.Builder
		s := newSoak(&out)
		s.run(d)
		ok := s.report()
		t.Log(out.String())
		require.True(t, ok)
		missing = ""
		for name, n := range map[string]*atomic.Int64{
			"run": &s.total.ran, "cancel": &s.total.canceled, "handed back": &s.total.handedBack, "run of a job": &s.total.runs,
			"future": &s.total.futures, "context": &s.total.contexts, "timer": &s.total.timers, "tick": &s.total.ticks, "reset": &s.total.reset,
		} {
			if n.Load() == 0 {
				missing = name
			}
		}
	}
}

// Growth of memory, goroutines and open files is a violation.
func TestSteadySeesGrowth(t *testing.T) {
	run := func(heap func(i int) uint64, goroutines func(i int) int) int {
		var s steady
		s.begin, s.end = sample{heap: 1 << 20, goroutines: 1}, sample{heap: 1 << 20, goroutines: 1}
		for i := range 100 {
			s.add(sample{heap: heap(i), goroutines: goroutines(i)})
		}
		var v violations
		s.check(&v)
		n := v.count
		return n
	}
	even := func(i int) uint64 { return uint64(20+i%10) << 20 }
	few := func(i int) int { return 200 + i%50 }
	require.Equal(t, 0, run(even, few))
	require.Equal(t, 1, run(func(i int) uint64 { return uint64(i) << 20 }, few))
	require.Equal(t, 1, run(even, func(i int) int { return 10 * i }))

	s := steady{begin: sample{heap: 1 << 20}, end: sample{heap: 20 << 20, files: 9}}
	var v violations
	s.check(&v)
	n := v.count
	require.Equal(t, 2, n)
}

// A task that ends twice, or is lost, or is early, is a violation.
func TestLedgerSeesWhatIsWrong(t *testing.T) {
	s := newSoak(new(strings.Builder))
	violated := func(do func(l *life, task *task)) int {
		before := s.violations.count
		l := &life{soak: s}
		do(l, newTask(l, "a task"))
		l.lost()
		return s.violations.count - before
	}
	armed := func(task *task, due time.Duration) {
		task.mu.Lock()
		defer task.mu.Unlock()
		task.arm(due)
	}
	require.Equal(t, 0, violated(func(_ *life, task *task) { armed(task, 0); task.ran() }))
	require.Equal(t, 1, violated(func(_ *life, task *task) { armed(task, 0); task.ran(); task.ran() }), "twice")
	require.Equal(t, 1, violated(func(_ *life, task *task) { armed(task, 0) }), "lost")
	require.Equal(t, 1, violated(func(_ *life, task *task) { armed(task, time.Hour); task.ran() }), "early")
	require.Equal(t, 1, violated(func(l *life, task *task) {
		armed(task, time.Hour)
		l.mode.Store(handingBack)
		task.ran()
	}), "handed back with a deadline that is too early")
	require.Equal(t, 0, violated(func(l *life, task *task) {
		l.ending.begun.Store(true)
		armed(task, 0)
		task.armed(true)
	}), "perhaps refused")
}
