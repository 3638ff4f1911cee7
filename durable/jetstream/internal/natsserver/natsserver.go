// Package natsserver runs servers of NATS for tests, each as a process of its own and without the
// race detector. In the process of a test, servers share its few threads with all the tests that run
// at the same time, and do not answer in time; and the race detector doubles their processor time.
package natsserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// given is the environment variable that has the file of a serve that was built with another release of the
// server, such as one of .ci/server.
const given = "TICKWHEEL_NATS_PROGRAM"

// program builds serve when the first server starts, and returns its file.
var program = sync.OnceValues(func() (string, error) {
	if file := os.Getenv(given); file != "" {
		return file, nil
	}
	dir, err := os.MkdirTemp("", "natsserver")
	if err != nil {
		return "", err
	}
	built.Store(&dir)
	build := exec.Command("go", "build", "-o", dir, "github.com/tickwheel/tickwheel/durable/jetstream/internal/natsserver/serve")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("natsserver: %w: %s", err, out)
	}
	return filepath.Join(dir, "serve"), nil
})

var built atomic.Pointer[string] // the directory of the program

// Main runs the tests of a package that starts servers, and deletes their program.
func Main(m *testing.M) {
	code := m.Run()
	if dir := built.Load(); dir != nil {
		os.RemoveAll(*dir)
	}
	os.Exit(code)
}

// Server is a server that runs. It is a nats.InProcessConnProvider, so that a test can put something
// of its own between a client and a server.
type Server struct {
	cmd   *exec.Cmd
	input io.Closer
	url   string
}

// Start starts a server with flags of serve, and returns when it takes connections. It ends with this
// process, too: its standard input is closed then.
func Start(flags ...string) (*Server, error) {
	file, err := program()
	if err != nil {
		return nil, err
	}
	s := &Server{cmd: exec.Command(file, flags...)}
	s.cmd.Stderr = os.Stderr
	input, inErr := s.cmd.StdinPipe()
	output, outErr := s.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, s.cmd.Start()); err != nil {
		return nil, err
	}
	s.input = input
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("natsserver: no address: %w", err), s.Stop())
	}
	s.url = strings.TrimSpace(line)
	return s, nil
}

// Stop ends the server, and returns when it has ended. After the first call it does nothing.
func (s *Server) Stop() error {
	if s.cmd.ProcessState != nil {
		return nil
	}
	s.input.Close()
	return s.cmd.Wait()
}

func (s *Server) ClientURL() string { return s.url }

// Signal sends the server a signal.
func (s *Server) Signal(sig os.Signal) error { return s.cmd.Process.Signal(sig) }

// InProcessConn connects to the server.
func (s *Server) InProcessConn() (net.Conn, error) {
	u, err := url.Parse(s.url)
	if err != nil {
		return nil, err
	}
	return net.Dial("tcp", u.Host)
}
