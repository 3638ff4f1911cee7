package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A copy of this program arms another timer with every read, and forgets it. The profile has the
// line of that at its top, beside the timeouts of the connections.
func TestTheProfileFindsALeak(t *testing.T) {
	server, line := plant(t, "server.go", "if _, err := c.conn.Write(buf[:n]); err != nil {",
		"c.server.wheel.AfterFunc(time.Hour, func() { c.conn.Close() }) // the leak\n\t\tif _, err := c.conn.Write(buf[:n]); err != nil {")
	main, _ := plant(t, "main.go", "\tif err := errors.Join(err, ctx.Err()); err != nil {\n", `	profile, _ := os.Create(os.Getenv("PROFILE"))
	wheel.WriteProfile(profile)
	profile.Close()
	if err := errors.Join(err, ctx.Err()); err != nil {
`, "timingwheel.New()", "timingwheel.New(timingwheel.WithProfileRate(8))", "\t\"net\"\n", "\t\"net\"\n\t\"os\"\n")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{absolute(t, "server.go"): server, absolute(t, "main.go"): main}})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644))
	profile := filepath.Join(dir, "timers.pb.gz")
	program := exec.Command("go", "run", "-overlay", filepath.Join(dir, "overlay.json"), ".", "-n", "100", "-idle", "1s")
	program.Env = append(os.Environ(), "PROFILE="+profile)
	out, _ := program.CombinedOutput() // slower than the limit, on a busy machine, it ends with an error; the profile is there
	report, err := exec.Command("go", "tool", "pprof", "-top", "-lines", profile).CombinedOutput()
	require.NoError(t, err, "%s\n%s", out, report)
	_, rows, _ := strings.Cut(string(report), "cum%\n")
	top, _, _ := strings.Cut(rows, "\n")
	require.Contains(t, top, "main.(*peer).echo ", "%s", report)
	require.Contains(t, top, fmt.Sprintf("examples/idleconn/server.go:%d", line), "%s", report) // below whichever path it was built with
}

// plant writes a copy of a file with each old text replaced by the new one after it. It returns
// the path of the copy, and the line of the first.
func plant(t *testing.T, file string, oldnew ...string) (path string, line int) {
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	before, _, found := strings.Cut(string(source), oldnew[0])
	require.True(t, found)
	path = filepath.Join(t.TempDir(), file)
	require.NoError(t, os.WriteFile(path, []byte(strings.NewReplacer(oldnew...).Replace(string(source))), 0o644))
	return path, 1 + strings.Count(before, "\n")
}

func absolute(t *testing.T, file string) string {
	path, err := filepath.Abs(file)
	require.NoError(t, err)
	return path
}
