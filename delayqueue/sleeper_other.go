//go:build !linux

package delayqueue

import "errors"

// newPreciseSleeper returns an error: only Linux has timerfds.
func newPreciseSleeper() (sleeper, error) { return nil, errors.ErrUnsupported }
