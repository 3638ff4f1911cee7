//go:build unix && !aix && (!solaris || illumos)

package embedded

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// lock is an exclusive flock on a file, which the system releases when the process dies.
// The server itself lets two processes write to one directory, and they lose what they
// have acknowledged.
type lock struct{ f *os.File }

func lockDir(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrStorage, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", driver.ErrLocked, path)
		}
		return nil, fmt.Errorf("%w: locking %s: %w", driver.ErrStorage, path, err)
	}
	return &lock{f}, nil
}

func (l *lock) release() error { return l.f.Close() }
