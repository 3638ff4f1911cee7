package embedded

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// lock is an exclusive lock on a file, which the system releases when the process dies.
// The server itself lets two processes write to one directory, and they lose what they
// have acknowledged.
type lock struct{ f *os.File }

func lockDir(path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrStorage, err)
	}
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	if err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped)); err != nil {
		f.Close()
		if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
			return nil, fmt.Errorf("%w: %s", driver.ErrLocked, path)
		}
		return nil, fmt.Errorf("%w: locking %s: %w", driver.ErrStorage, path, err)
	}
	return &lock{f}, nil
}

func (l *lock) release() error { return l.f.Close() }
