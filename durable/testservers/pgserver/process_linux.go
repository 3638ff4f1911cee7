package pgserver

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const supported = true

// process is the server's parent process, which has one child for each connection.
type process struct {
	pid  int
	done chan struct{} // closed when it has ended
}

// attributes has the server end when this process does: by SIGQUIT, on which it ends its
// children, too. SIGKILL would leave them to find out.
func attributes(uid, gid int) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT, Setpgid: true}
	if uid >= 0 {
		a.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return a
}

// start starts the command on a thread that lives as long as the command: the death
// signal is sent when the thread ends that has started it.
func start(cmd *exec.Cmd) (*process, error) {
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		started <- nil
		cmd.Wait()
	}()
	return p, <-started
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the parent and its children. The parent is halted before, so that it makes no
// more of them. They are in process groups of their own.
func (p *process) kill() error {
	if p.ended() {
		return nil
	}
	if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
		return err
	}
	pids := children(p.pid)
	err := signal(append([]int{p.pid}, pids...), syscall.SIGKILL)
	<-p.done
	for end := time.Now().Add(patience); len(pids) > 0; time.Sleep(time.Millisecond) {
		if state := statOf(pids[0]).state; state == 0 || state == 'Z' {
			pids = pids[1:]
		} else if time.Now().After(end) {
			return errors.Join(err, fmt.Errorf("pgserver: process %d survives SIGKILL", pids[0]))
		}
	}
	return err
}

// freeze halts the parent before its children, so that it makes no more of them.
func (p *process) freeze() error {
	if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
		return err
	}
	return signal(children(p.pid), syscall.SIGSTOP)
}

func (p *process) thaw() error {
	return signal(append(children(p.pid), p.pid), syscall.SIGCONT)
}

// signal sends a signal to processes, of which some may have ended.
func signal(pids []int, sig syscall.Signal) (err error) {
	for _, pid := range pids {
		if e := syscall.Kill(pid, sig); e != nil && !errors.Is(e, syscall.ESRCH) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// stop ends the server in order, and kills it if that takes long.
func (p *process) stop() error {
	if p == nil || p.ended() {
		return nil
	}
	if err := syscall.Kill(p.pid, syscall.SIGINT); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
		return errors.Join(errors.New("pgserver: it does not stop"), p.kill())
	}
}
