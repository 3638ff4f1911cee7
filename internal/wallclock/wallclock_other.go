//go:build !linux

package wallclock

import (
	"errors"
	"os"
	"time"
)

// Only Linux has a notice, and a clock beside the monotonic one that package syscall can read.

func openNotice() (*os.File, error) { return nil, errors.ErrUnsupported }

func waitForNotice(*os.File) error { return errors.ErrUnsupported }

// Suspended returns errors.ErrUnsupported.
func Suspended() (least, most time.Duration, err error) { return 0, 0, errors.ErrUnsupported }
