//go:build !linux && !darwin && !freebsd && !windows

package embedded

import "errors"

// freeBytes does not know: WithMaxStore alone limits the store.
func freeBytes(string) (int64, error) { return 0, errors.ErrUnsupported }
