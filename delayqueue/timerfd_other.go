//go:build !linux

package delayqueue

import (
	"errors"
	"time"
)

// timerfd does nothing: only Linux has timerfds.
type timerfd struct{}

func newTimerfd() (*timerfd, error)    { return nil, errors.ErrUnsupported }
func (*timerfd) works() bool           { return false }
func (*timerfd) endPoll(time.Duration) {}
func (*timerfd) close()                {}
