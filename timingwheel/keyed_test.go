package timingwheel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// Keys that Stop has handed back are counted right, each for itself, while another of their
// stripe waits in the executor's queue.
func TestKeyedCountsBesideTheQueue(t *testing.T) {
	w := New(WithManualDrive(), WithExecutor(ExecutorFunc(func(func()) {})))
	k := NewKeyed[int](w)
	var keys []int
	for key := 0; len(keys) < 4; key++ {
		if k.stripe(key) == &k.stripes[0] {
			keys = append(keys, key)
		}
	}
	k.Schedule(keys[0], 0, mustNotRun)
	require.Equal(t, 1, w.Drive(0))
	for _, key := range keys[1:] {
		k.Schedule(key, time.Hour, mustNotRun)
	}
	require.Len(t, w.Stop(), 3)
	for i, look := range []func(key int){
		func(key int) { k.Cancel(key) },
		func(key int) { k.Reset(key, 0) },
		func(key int) { k.Deadline(key) },
	} {
		look(keys[1+i])
		require.Equal(t, 1, k.Len())
	}
	require.True(t, k.Cancel(keys[0]))
	require.Zero(t, k.Len())
}

// The wheel's Stop has handed back a task just before another takes its place: the key counts
// as scheduled, and its new function is not forgotten with the old one.
func TestKeyInPlaceOfOneHandedBack(t *testing.T) {
	w := New()
	defer w.Stop()
	k := NewKeyed[string](w)
	_, err := k.Schedule("key", time.Hour, func() {})
	require.NoError(t, err)
	s := k.lock("key")
	old, _ := s.tasks.Get("key")
	require.NotNil(t, old.take()) // as Stop does, in due
	s.handedBack.Add(1)
	replaced, err := s.put(&keyedTask[string]{keyed: k, key: "key", f: func() {}}, old, k.engine.After(time.Hour), (*engine.Handle).Accept)
	s.mu.Unlock()
	require.NoError(t, err)
	require.False(t, replaced)
	require.Equal(t, 1, k.Len())
	require.True(t, k.Cancel("key"))
	require.Zero(t, k.Len())
}
