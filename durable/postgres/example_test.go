package postgres_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The example of two services runs on a database as it does in a directory, where its own
// test runs it. (A machine that is busy may be slow to begin.)
func TestExampleOfTwoServices(t *testing.T) {
	t.Parallel()
	const dir = "../../examples/integrations/schedule"
	if _, err := os.Stat(dir); err != nil {
		t.Skip("the example is not in this module")
	}
	program := t.TempDir() + "/schedule"
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = dir
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	dsn := shared.Test(t).DSN()
	for period := 3 * time.Second; ; period *= 2 {
		out, err := exec.CommandContext(t.Context(), program, "-postgres", dsn, "-for", period.String()).Output()
		require.NoError(t, err)
		t.Logf("%s", out)
		if period > time.Minute || hasBoth(string(out)) {
			require.True(t, hasBoth(string(out)), "%s", out)
			return
		}
	}
}

// hasBoth reports whether both services have run an occurrence.
func hasBoth(out string) bool {
	return strings.Contains(out, "the service that stores it") && strings.Contains(out, "one that does not know it")
}
