//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// lastRelease is what workers are upgraded from: the tag of the last release, and until there
// is one a commit, in which the schema of PostgreSQL's newest version is as it will be
// released. The printed steps of a release say to raise it.
const lastRelease = "1e20be279cfdd74fee57efcfdf4f8c2e30efc41d"

// build builds the worker in a directory, with the packages of the checkout around it.
func build(t *testing.T, dir string) string {
	name := filepath.Join(t.TempDir(), "worker")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", name, ".")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return name
}

// ofLastRelease builds the worker with the packages of the last release. A copy that has no
// history, as a download of a module has none, cannot.
func ofLastRelease(t *testing.T) string {
	out, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--show-toplevel").Output()
	if err != nil || exec.CommandContext(t.Context(), "git", "cat-file", "-e", lastRelease+"^{commit}").Run() != nil {
		t.Skip("the last release is not in this checkout's history:", lastRelease)
	}
	archive, dir := filepath.Join(t.TempDir(), "release.tar"), t.TempDir()
	cmd := exec.CommandContext(t.Context(), "git", "archive", "-o", archive, lastRelease)
	cmd.Dir = strings.TrimSpace(string(out))
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	source, err := os.ReadFile("rolling/main.go")
	require.NoError(t, err)
	worker := filepath.Join(dir, "durable", "trials", "rolling")
	require.NoError(t, os.MkdirAll(worker, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(worker, "main.go"), source, 0o600))
	return build(t, worker)
}

// Workers of the last release are replaced by new ones, one after the other, while jobs are
// added and run: each job runs, and except those that the old have given up because they are
// told to, once.
func TestRolling(t *testing.T) {
	t.Parallel()
	old, young := ofLastRelease(t), build(t, "rolling")
	t.Run("JetStream", func(t *testing.T) {
		s := newStore(onJetStream)
		defer s.remove()
		roll(t, old, young, s.url)
	})
	t.Run("PostgreSQL", func(t *testing.T) { roll(t, old, young, pgserver.Test(t).DSN()) })
}

const rolled = 200 // jobs that each worker adds

func roll(t *testing.T, old, young, place string) {
	dir := t.TempDir()
	count := func(of string, what rune) int { return linesIn(dir, of, what, nil) }
	inWorld(dir, "", func(w *world) {
		start := func(name, worker string) {
			w.launch(name, exec.Command(worker, place, strconv.Itoa(rolled), filepath.Join(dir, "ledger-"+name)))
			require.Eventually(t, func() bool { return count(name, accepted) == rolled || w.procs[name].hasEnded() }, 2*patience, 10*time.Millisecond)
			require.False(t, w.procs[name].hasEnded(), name)
		}
		start("old1", old)
		start("old2", old)
		start("young1", young)
		w.stop("old1")
		start("young2", young)
		w.stop("old2")
		var a account
		require.Eventually(t, func() bool { a = audit(dir); return a.Broken.Lost == 0 }, 2*patience, 100*time.Millisecond)
		w.stop("young1")
		w.stop("young2")
		a = audit(dir)
		older := count("", 'Z')
		t.Logf("%d ran in workers of the last release, %d in new ones; %d of the former were told that they are too old", count("old", began), count("young", began), older)
		require.Equal(t, 4*rolled, a.Accepted)
		require.Zero(t, a.Stray+a.Broken.Lost)
		require.True(t, a.Twice == 0 || older > 0, "%d ran twice", a.Twice)
		require.Positive(t, count("old", began))
		require.Positive(t, count("young", began))
		require.Zero(t, w.r.Broken.Died)
	})
}
