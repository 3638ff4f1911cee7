package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// take locks a directory. Of two engines of one process one is refused as if it were of
// another; the file "owner" has the number of the process, so that the error can say which
// it is.
func take(dir string) (*lock, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrStorage, err)
	}
	owner, self := filepath.Join(dir, "owner"), strconv.Itoa(os.Getpid())
	l, err := lockDir(filepath.Join(dir, "lock"))
	switch {
	case err == nil:
		if err := os.WriteFile(owner, []byte(self), 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: %w", driver.ErrStorage, err), l.release())
		}
		return l, nil
	case !errors.Is(err, driver.ErrLocked):
		return nil, err
	}
	if pid, err := os.ReadFile(owner); err == nil && string(pid) == self {
		return nil, fmt.Errorf("%w: %s is open in another engine of this process: use one engine for a directory", driver.ErrLocked, dir)
	}
	return nil, fmt.Errorf("%w: %s is open in another process", driver.ErrLocked, dir)
}
