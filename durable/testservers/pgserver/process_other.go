//go:build !linux

package pgserver

import (
	"os/exec"
	"syscall"
)

// Elsewhere no server is started: that it ends with this process, and finding its
// children, are done in Linux's way.
const supported = false

type process struct {
	pid  int
	done chan struct{}
}

func attributes(int, int) *syscall.SysProcAttr { return nil }
func start(*exec.Cmd) (*process, error)        { return nil, ErrMissing }
func (*process) kill() error                   { return ErrMissing }
func (*process) freeze() error                 { return ErrMissing }
func (*process) thaw() error                   { return ErrMissing }
func (*process) stop() error                   { return nil }
