//go:build (!unix && !windows) || aix || (solaris && !illumos)

package embedded

import (
	"errors"
	"fmt"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// lock: here no file can be locked (js, wasip1, plan9, solaris, aix), and without that two processes
// would lose what they have acknowledged. So no directory is opened.
type lock struct{}

func lockDir(path string) (*lock, error) {
	return nil, fmt.Errorf("%w: locking %s: %w", driver.ErrStorage, path, errors.ErrUnsupported)
}

func (*lock) release() error { return nil }
