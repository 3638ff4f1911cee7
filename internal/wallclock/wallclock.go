// Package wallclock tells when the wall clock is set and when the machine resumes after it
// was suspended. It also tells for how long the machine has been suspended.
//
// A process has one goroutine and one file descriptor for this, while somebody watches. The
// goroutine waits in the network poller, and wakes up for nothing else.
package wallclock

import (
	"context"
	"errors"
	"maps"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"

	"github.com/tickwheel/tickwheel/internal/bubble"
)

// MonotonicCounts reports whether Go's monotonic clock itself counts the time for which the
// machine was suspended. On Windows it reads the interrupt time, which does, and the runtime
// wakes its threads when the machine resumes. On Linux, macOS and the BSDs it does not.
const MonotonicCounts = runtime.GOOS == "windows"

// Watch makes a goroutine call f(nil) whenever the wall clock was set or the machine has
// resumed, until stop is called. One call of f may still come after that. If the watch ends
// by itself, f is called with the error, and then no more. f must not block.
//
// A watch keeps f, and all that f refers to. Watch returns an error where the system has no
// such notice or refuses it: it needs Linux and a file descriptor. It also does so in a bubble of
// testing/synctest, which would own the goroutine, and whose clock nobody sets.
func Watch(f func(error)) (stop func(), err error) {
	if bubble.Inside() {
		return nil, errors.ErrUnsupported
	}
	return process.add(f)
}

var process watcher

// watcher has a goroutine that reads file while there are subscribers. A read returns when
// there is something to tell.
type watcher struct {
	mu   sync.Mutex
	file *os.File // nil without subscribers
	all  map[*subscriber]struct{}
}

type subscriber struct{ f func(error) }

func (w *watcher) add(f func(error)) (stop func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		file, err := openNotice()
		if err != nil {
			return nil, err
		}
		w.file, w.all = file, map[*subscriber]struct{}{}
		go w.read(file)
	}
	s := &subscriber{f}
	w.all[s] = struct{}{}
	return func() { w.remove(s) }, nil
}

func (w *watcher) remove(s *subscriber) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, s)
	if len(w.all) == 0 {
		w.close()
	}
}

// close ends the read, and so the goroutine. It is called with the lock held.
func (w *watcher) close() {
	w.file.Close() // of nil it does nothing
	w.file, w.all = nil, nil
}

func (w *watcher) read(file *os.File) {
	pprof.SetGoroutineLabels(context.Background()) // instead of those of whoever watches first
	for more := true; more; {
		more = w.tell(file, waitForNotice(file))
	}
}

// tell tells all subscribers how a read of file has ended. It reports whether to read on.
func (w *watcher) tell(file *os.File, err error) (more bool) {
	w.mu.Lock()
	if w.file != file {
		w.mu.Unlock() // nobody watches, or another goroutine reads for those who do
		return false
	}
	all := slices.Collect(maps.Keys(w.all))
	if err != nil {
		w.close()
	}
	w.mu.Unlock()
	for _, s := range all {
		s.f(err)
	}
	return err == nil
}
