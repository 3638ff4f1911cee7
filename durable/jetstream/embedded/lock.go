package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/tickwheel/tickwheel/durable"
)

// taken are the directories that engines of this process have open, to tell who has one:
// the system does not.
var taken = struct {
	mu   sync.Mutex
	dirs map[*lock]os.FileInfo
}{dirs: map[*lock]os.FileInfo{}}

// take locks a directory. Of two engines of one process one is refused as if it were of
// another.
func take(dir string) (*lock, error) {
	taken.mu.Lock()
	defer taken.mu.Unlock()
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", durable.ErrStorage, err)
	}
	l, err := lockDir(filepath.Join(dir, "lock"))
	if err == nil {
		taken.dirs[l] = info
		return l, nil
	}
	if !errors.Is(err, durable.ErrLocked) {
		return nil, err
	}
	for _, other := range taken.dirs {
		if os.SameFile(info, other) {
			return nil, fmt.Errorf("%w: %s: by another engine of this process: a directory has one engine, and so one queue", durable.ErrLocked, dir)
		}
	}
	return nil, fmt.Errorf("%w: %s: by another process", durable.ErrLocked, dir)
}

// giveBack releases the lock of a directory.
func giveBack(l *lock) error {
	taken.mu.Lock()
	defer taken.mu.Unlock()
	delete(taken.dirs, l)
	return l.release()
}
