package pgserver

import "testing"

// Standby returns a server that follows s without s waiting for it, and that is stopped at the
// end of the test. Kill ends it; what s writes then it lacks when Start has started it again.
// It answers queries, unless the replay cancels one, and becomes a primary with select pg_promote(false).
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	standby := &Server{bin: s.bin, settings: s.settings, uid: s.uid, gid: s.gid}
	if _, err := standby.made("pg_basebackup", "-d", s.DSN(), "-R", "-X", "stream", "--checkpoint=fast"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	return standby
}
