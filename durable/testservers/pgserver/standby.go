package pgserver

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/tickwheel/tickwheel/durable/testservers/ports"
)

// Standby returns a server that follows s without s waiting for it, and that is stopped at the
// end of the test. Kill ends it; what s writes then it lacks when Start has started it again.
// It answers queries, and becomes a primary with select pg_promote().
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	standby, err := s.standby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	return standby
}

func (s *Server) standby() (*Server, error) {
	dir, err := os.MkdirTemp("", "tickwheel-postgres-")
	if err != nil {
		return nil, err
	}
	c := &Server{dir: dir, bin: s.bin, settings: s.settings, uid: s.uid, gid: s.gid}
	if err := c.follow(s); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

// follow copies a server, and starts to follow it.
func (s *Server) follow(primary *Server) error {
	if s.uid >= 0 {
		if err := os.Chown(s.dir, s.uid, s.gid); err != nil {
			return err
		}
	}
	backup := s.command("pg_basebackup", "-D", s.data(), "-d", primary.DSN(), "-R", "-X", "stream", "--checkpoint=fast", "--no-sync")
	if out, err := backup.CombinedOutput(); err != nil {
		return fmt.Errorf("pgserver: pg_basebackup: %w\n%s", err, out)
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
