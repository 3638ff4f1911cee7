package timingwheel_test

import (
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// A function that locks its thread, changes it and returns leaves the thread to later functions, since
// they take turns on a goroutine. Two lines mend that: an executor with a goroutine for each function,
// or a goroutine inside the function that changes its thread. Then the thread ends with the goroutine.
func TestThreadThatWasChangedIsNotUsedAgain(t *testing.T) {
	own := timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) { go task() }))
	inside := func(f func()) func() { return func() { go f() } }
	asIs := func(f func()) func() { return f }
	require.Zero(t, runOnChangedThreads(t, timingwheel.New(own), asIs), "each function has a goroutine")
	require.Zero(t, runOnChangedThreads(t, timingwheel.New(), inside), "the functions that change it have one")
}

// runOnChangedThreads runs functions, of which each third changes its thread, as what change makes of
// it. It returns how many of the others ran on a thread that was changed before.
func runOnChangedThreads(t *testing.T, w *timingwheel.TimingWheel, change func(f func()) func()) (n int) {
	t.Helper()
	defer w.Stop()
	var mu sync.Mutex
	changed := map[int]bool{} // by the number of the thread
	var running sync.WaitGroup
	var batch []timingwheel.Delayed
	for i := range 360 {
		running.Add(1)
		f := func() {
			defer running.Done()
			mu.Lock()
			defer mu.Unlock()
			if changed[syscall.Gettid()] {
				n++
			}
		}
		if i%3 == 0 {
			f = change(func() {
				defer running.Done()
				runtime.LockOSThread() // and, for example, syscall.Unshare
				mu.Lock()
				defer mu.Unlock()
				changed[syscall.Gettid()] = true
			})
		}
		batch = append(batch, timingwheel.Delayed{After: time.Duration(i%5) * time.Millisecond, Func: f})
	}
	_, err := w.ScheduleBatch(nil, batch)
	require.NoError(t, err)
	running.Wait()
	return n
}
