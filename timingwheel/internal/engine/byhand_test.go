package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A manual clock never goes back, though a bucket that was opened after an idle stretch
// has expired before it was opened.
func TestManualClockDoesNotGoBackToAnExpiredBucket(t *testing.T) {
	w := virtual()
	defer w.Stop()
	w.Advance(700 * time.Millisecond)
	_, err := w.Schedule(10*time.Millisecond, noop)
	require.NoError(t, err)
	_, at, ok := w.driver.queue.Peek()
	require.True(t, ok)
	require.True(t, at.Before(w.clock.Read()), "it is in a coarse bucket that has expired")
	require.Zero(t, w.flushUntil(600*time.Millisecond))
	require.Equal(t, 700*time.Millisecond, w.clock.Now())
	_, at, _ = w.driver.queue.Peek()
	require.True(t, at.After(w.clock.Read()), "it has cascaded")
}

// Once a burst has fired its memory is given back, though nobody cancels anything: what is
// left far off pins no chunks.
func TestFiringGivesMemoryBack(t *testing.T) {
	w := virtual()
	defer w.Stop()
	s := &w.shards[0]
	const n = 100_000
	for i := range n {
		d := time.Second + time.Duration(i)*time.Microsecond
		if i%1000 == 0 {
			d = time.Hour
		}
		addFunction(s, d, noop)
	}
	full := s.arena.Cap()
	require.Equal(t, n-n/1000, w.Advance(2*time.Second))
	require.Equal(t, n/1000, s.arena.Len())
	require.Less(t, s.arena.Cap(), full/10)
	w.verify(t)
}

// A cancel between the slices of a pass moves no entry: the pass would miss one that went
// to a place where it has been.
func TestCancelOnAClosedShardMovesNoEntry(t *testing.T) {
	for _, closed := range []bool{false, true} {
		w := virtual()
		s := &w.shards[0]
		var handles []ref
		for range 50_000 {
			handles = append(handles, addFunction(s, time.Hour, noop))
		}
		s.mu.Lock()
		s.closed = closed
		for i, h := range handles {
			if i%100 != 0 {
				require.True(t, s.cancel(h))
			}
		}
		moved := 0
		for i, h := range handles {
			if i%100 == 0 && !s.arena.Alive(h.index, h.generation) {
				moved++
			}
		}
		require.Equal(t, closed, moved == 0)
		s.closed = false
		s.mu.Unlock()
		w.Stop()
	}
}
