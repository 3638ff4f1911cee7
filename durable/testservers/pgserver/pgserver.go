// Package pgserver runs a PostgreSQL server for tests and benchmarks: a real one, on a
// free port of the loopback interface, with a data directory of its own that goes with
// it. It can be killed as a crash does and started again.
//
// The server keeps its durable settings: fsync and synchronous_commit are on. Without
// them a test of a crash would prove nothing, and a benchmark would flatter.
package pgserver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/durable/testservers/ports"
)

// ErrMissing: this machine has no server to start.
var ErrMissing = errors.New("pgserver: no PostgreSQL server is installed")

// programs is the environment variable that has the folder of the server's programs, such as one that
// .ci/server has installed.
const programs = "TICKWHEEL_POSTGRES_PROGRAMS"

// required is the environment variable that makes a missing server a failure.
const required = "TICKWHEEL_POSTGRES"

// patience is how long a server may take to start or to stop. It is a bound: a second is
// normal.
const patience = 2 * time.Minute

// Server is one PostgreSQL server. Its methods are for one goroutine at a time.
type Server struct {
	dir      string             // ours: data and log
	bin      string             // where postgres is
	ports    *ports.Reservation // of one
	settings []string
	uid, gid int // whom it runs as; -1: us
	run      *process
}

// Test returns a server for a test or benchmark, which is stopped at its end. Without the
// binaries the test is skipped, or fails if TICKWHEEL_POSTGRES=required is set. Settings
// are those of postgresql.conf, such as "max_connections=20".
func Test(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := New(settings...)
	check(t, err)
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// check skips a test for which there is no server, or fails it.
func check(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrMissing) && os.Getenv(required) != "required" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Shared is a server of several tests, which saves each of them a second or two of processor time.
type Shared struct {
	Settings []string

	once   sync.Once
	server *Server
	err    error
}

// Test returns the server, which the first call starts. Otherwise it does what the function Test does.
func (s *Shared) Test(t testing.TB) *Server {
	t.Helper()
	s.once.Do(func() { s.server, s.err = New(s.Settings...) })
	check(t, s.err)
	return s.server
}

// Stop stops the server, if there is one. TestMain calls it when all tests have ended.
func (s *Shared) Stop() error {
	if s.server == nil {
		return nil
	}
	return s.server.Stop()
}

// New makes a data directory and starts a server on it. It takes some seconds. The caller
// calls Stop. The server ends in any case when this process does.
func New(settings ...string) (*Server, error) {
	bin, err := binaries("/usr/lib/postgresql")
	if err != nil {
		return nil, err
	}
	uid, gid, err := owner()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, settings: settings, uid: uid, gid: gid}
	return s.made("initdb", "-U", "tickwheel", "-A", "trust", "-E", "UTF8", "--locale=C")
}

// made returns the server, started on a data directory that a program has made. After an error nothing is left.
func (s *Server) made(program string, args ...string) (_ *Server, err error) {
	if s.dir, err = os.MkdirTemp("", "tickwheel-postgres-"); err != nil {
		return nil, err
	}
	if err := s.create(program, args...); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

func (s *Server) create(program string, args ...string) error {
	if s.uid >= 0 {
		if err := os.Chown(s.dir, s.uid, s.gid); err != nil {
			return err
		}
	}
	if out, err := s.command(program, append(args, "-D", s.data(), "--no-sync")...).CombinedOutput(); err != nil {
		return fmt.Errorf("pgserver: %s: %w\n%s", program, err, out)
	}
	var err error
	if s.ports, err = ports.Reserve(1); err != nil {
		return err
	}
	if err := s.Start(); err != nil {
		s.ports.Release()
		return err
	}
	return nil
}

// binaries returns the directory with initdb and postgres: that of the environment, that of PATH, or the
// newest of those that Debian's packages install, which are not in PATH.
func binaries(debian string) (string, error) {
	if !supported {
		return "", ErrMissing
	}
	if dir := os.Getenv(programs); dir != "" {
		return dir, nil
	}
	if p, err := exec.LookPath("initdb"); err == nil {
		if p, err = filepath.EvalSymlinks(p); err == nil {
			return filepath.Dir(p), nil
		}
	}
	found, newest := "", -1
	dirs, _ := filepath.Glob(filepath.Join(debian, "*", "bin", "initdb"))
	for _, initdb := range dirs {
		bin := filepath.Dir(initdb)
		if v, err := strconv.Atoi(filepath.Base(filepath.Dir(bin))); err == nil && v > newest {
			found, newest = bin, v
		}
	}
	if found == "" {
		return "", ErrMissing
	}
	return found, nil
}

// owner returns whom the server runs as. It refuses to run as root.
func owner() (uid, gid int, err error) {
	if os.Getuid() != 0 {
		return -1, -1, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return 0, 0, err
		}
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}

func (s *Server) port() int { return s.ports.Ports[0] }

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Log returns the path of what the server writes about itself.
func (s *Server) Log() string { return filepath.Join(s.dir, "log") }

// DSN is the address of the server's first database, for pgx and psql. It stays the same
// over Kill and Start.
func (s *Server) DSN() string {
	return fmt.Sprintf("postgres://tickwheel@127.0.0.1:%d/postgres?sslmode=disable", s.port())
}

// PID is the process id of the server's parent process.
func (s *Server) PID() int { return s.run.pid }

// Start starts a server that was killed, and returns when it answers.
func (s *Server) Start() error {
	args := []string{"-D", s.data(), "-h", "127.0.0.1", "-p", strconv.Itoa(s.port()), "-k", ""}
	for _, set := range s.settings {
		args = append(args, "-c", set)
	}
	log, err := os.OpenFile(s.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.command("postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	if s.run, err = start(cmd); err != nil {
		return err
	}
	if err := s.awaitAnswer(); err != nil {
		text, _ := os.ReadFile(s.Log())
		return errors.Join(fmt.Errorf("pgserver: it does not start: %w\n%s", err, text), s.Kill())
	}
	return nil
}

func (s *Server) awaitAnswer() error {
	late := time.After(patience)
	for {
		err := s.ping()
		if err == nil {
			return nil
		}
		select {
		case <-s.run.done:
			return errors.New("it has ended")
		case <-late:
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ping logs in, without a client of PostgreSQL, which this module does not have, and without pg_isready, which
// not every package of the server has. A server that starts answers with an error.
func (s *Server) ping() error {
	c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port())), time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	const body = "\x00\x03\x00\x00user\x00tickwheel\x00database\x00postgres\x00\x00" // version 3 of the protocol
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(4+len(body))), body...)); err != nil {
		return err
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(c, answer); err != nil {
		return err
	}
	if answer[0] != 'R' {
		return fmt.Errorf("pgserver: the server answers %q", answer)
	}
	return nil
}

// Kill ends all processes of the server with SIGKILL. Writes that were not on the disk are lost.
func (s *Server) Kill() error { return s.run.kill() }

// Freeze halts all processes of the server: it keeps its connections, takes new ones and answers nothing, until Thaw or
// Kill. Stop takes a frozen server for one that hangs.
func (s *Server) Freeze() error { return s.run.freeze() }

// Thaw lets a frozen server go on. One that is not frozen it leaves as it is.
func (s *Server) Thaw() error { return s.run.thaw() }

// Stop stops the server, if it runs, and removes its directory.
func (s *Server) Stop() error {
	defer s.ports.Release()
	return errors.Join(s.run.stop(), os.RemoveAll(s.dir))
}

// Dir is a directory of the server's, in which its owner may write. Its data are in Dir/data.
func (s *Server) Dir() string { return s.dir }

// Has reports whether the server's package has a program, such as pg_dump: not every one has all.
func (s *Server) Has(program string) bool {
	_, err := os.Stat(filepath.Join(s.bin, program))
	return err == nil
}

// Shell returns a command that runs a script as the server's owner, in Dir, with the
// server's programs in its path and the server's address in its environment.
func (s *Server) Shell(script string, env ...string) *exec.Cmd {
	cmd := s.command("sh", "-ec", script)
	cmd.Path, cmd.Err = "/bin/sh", nil
	cmd.Env = append(cmd.Env, "PATH="+s.bin+":"+os.Getenv("PATH"), "PGHOST=127.0.0.1", "PGPORT="+strconv.Itoa(s.port()),
		"PGUSER=tickwheel", "PGDATABASE=postgres")
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	cmd.SysProcAttr = attributes(s.uid, s.gid)
	return cmd
}
