package pgserver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Committed data survives Kill, at the same address. Stop leaves nothing.
func TestKillAndStart(t *testing.T) {
	s := Test(t, "max_connections=20")
	connect := func() *pgx.Conn {
		c, err := pgx.Connect(t.Context(), s.DSN())
		require.NoError(t, err)
		return c
	}
	c := connect()
	_, err := c.Exec(t.Context(), "create table t as select 7 as n")
	require.NoError(t, err)
	require.NotEmpty(t, children(s.PID()))
	pids := children(s.PID())
	require.NoError(t, s.Kill())
	for _, pid := range pids {
		parent, state := parentOf(pid)
		require.True(t, parent == 0 || state == 'Z', "process %d is left", pid)
	}
	require.Error(t, c.Ping(t.Context()))
	require.NoError(t, s.Start())
	c = connect()
	var n, most int
	require.NoError(t, c.QueryRow(t.Context(), "select n, current_setting('max_connections')::int from t").Scan(&n, &most))
	require.Equal(t, []int{7, 20}, []int{n, most})
	require.NoError(t, s.Stop())
	require.NoDirExists(t, s.dir)
	require.NoError(t, s.Stop())
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
