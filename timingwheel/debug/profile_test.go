package debug

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// A profile is of one wheel, and go tool pprof reads it.
func TestProfile(t *testing.T) {
	h := NewHandler()
	w := timingwheel.New(timingwheel.WithProfileRate(1))
	defer w.Stop()
	h.Add("a", w)
	for range 1000 {
		w.Schedule(time.Hour, func() {})
	}
	path := filepath.Join(t.TempDir(), "timers.pb.gz")
	require.NoError(t, os.WriteFile(path, get(h, "/?format=profile").Body.Bytes(), 0o644))
	report, err := exec.Command("go", "tool", "pprof", "-top", path).CombinedOutput()
	require.NoError(t, err, "%s", report)
	require.Contains(t, string(report), "1000   100%   100%       1000   100%  github.com/tickwheel/tickwheel/timingwheel/debug.TestProfile")

	h.add("b", &fake{})
	require.Equal(t, http.StatusBadRequest, get(h, "/?format=profile").Code, "of which?")
	require.Equal(t, http.StatusOK, get(h, "/?format=profile&wheel=a").Code)
	rec := get(h, "/?format=profile&wheel=b")
	require.Equal(t, http.StatusNotFound, rec.Code)
	require.Contains(t, rec.Body.String(), "WithProfileRate")
}

// HEAD writes no profile.
func TestProfileHead(t *testing.T) {
	h, f := NewHandler(), newFake()
	h.add("a", f)
	require.Equal(t, http.StatusOK, ask(h, http.MethodHead, "/?format=profile", "*/*").Code)
	require.Zero(t, f.profiles.Load())
	require.Equal(t, "profile", get(h, "/?format=profile").Body.String())
}
