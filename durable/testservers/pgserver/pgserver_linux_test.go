package pgserver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Committed data survives Kill, at the same address. Stop leaves nothing.
func TestKillAndStart(t *testing.T) {
	s := Test(t, "max_connections=20")
	_, err := s.query("create table t as select 7 as n")
	require.NoError(t, err)
	pids := children(s.PID())
	require.NotEmpty(t, pids)
	require.NoError(t, s.Kill())
	for _, pid := range pids {
		left := statOf(pid)
		require.True(t, left.parent == 0 || left.state == 'Z', "process %d is left", pid)
	}
	_, err = s.query("select")
	require.Error(t, err)
	require.NoError(t, s.Start())
	found, err := s.query("select n, current_setting('max_connections') from t")
	require.NoError(t, err)
	require.Equal(t, "7|20\n", found)
	require.NoError(t, s.Stop())
	require.NoDirExists(t, s.dir)
	require.NoError(t, s.Stop())
}

func (s *Server) query(statement string) (string, error) {
	out, err := s.Shell(`psql -qAtc "$STATEMENT"`, "STATEMENT="+statement).Output()
	return string(out), err
}

// The binaries are those of PATH, or else the newest of Debian's; that there are none is told
// apart from other failures.
func TestBinaries(t *testing.T) {
	t.Setenv("PATH", "")
	debian := t.TempDir()
	_, err := binaries(debian)
	require.ErrorIs(t, err, ErrMissing)
	for _, version := range []string{"9", "15", "old", "13"} {
		bin := filepath.Join(debian, version, "bin")
		require.NoError(t, os.MkdirAll(bin, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(bin, "initdb"), nil, 0o755))
	}
	bin, err := binaries(debian)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(debian, "15", "bin"), bin)
	t.Setenv("PATH", filepath.Join(debian, "9", "bin"))
	bin, err = binaries(debian)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(debian, "9", "bin"), bin)
}
