package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The line with the leak is at the top, and what was stopped is not there.
func TestFindsTheLeak(t *testing.T) {
	path := filepath.Join(t.TempDir(), "timers.pb.gz")
	out, err := exec.Command("go", "run", ".", "-o", path, "-n", "20000").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "22000 are pending")
	report, err := exec.Command("go", "tool", "pprof", "-top", "-lines", path).CombinedOutput()
	require.NoError(t, err, "%s", report)
	require.Regexp(t, `cum%\n +\d+ +\S+ +\S+ +\d+ +\S+ +main\.answer \S+main\.go:62\n +\d+ +\S+ +100% .* main\.keep \S+main\.go:51\n`, string(report))
}
