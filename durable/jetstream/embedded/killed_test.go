package embedded_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// A job that kills its process each time is dead when its attempts are used up: each
// start of the process counts one, but the first, when nobody could know that it had
// begun. None of the others that were under way dies with it, though it has one attempt
// less than there are starts: they run to their end.
func TestKilledByItsJob(t *testing.T) {
	if dir := os.Getenv("KILLED_DIR"); dir != "" {
		victim(t, dir)
		return
	}
	dir := t.TempDir()
	_, q := open(t, filepath.Join(dir, "store"))
	jobs := slices.Repeat([]durable.Job{{Kind: "slow", MaxAttempts: 3}}, 60)
	jobs[20].Kind = "kills"
	refs, err := q.AddMany(within(t), append(jobs, durable.Job{Kind: "k"})...)
	require.NoError(t, err)
	require.NoError(t, q.Close())
	starts := 0
	for ; starts < 10; starts++ {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledByItsJob$")
		cmd.Env = append(os.Environ(), "KILLED_DIR="+dir)
		out, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		require.Equal(t, "signal: killed", err.Error(), "%s", out)
	}
	_, q = open(t, filepath.Join(dir, "store"))
	kept := 0
	for info, err := range q.All(within(t), durable.Filter{}) {
		require.NoError(t, err)
		require.Equal(t, refs[20], info.Ref)
		require.Equal(t, durable.Dead, info.State)
		require.Contains(t, info.LastError, "its process died")
		require.Equal(t, 3, info.Attempt)
		kept++
	}
	require.Equal(t, 1, kept, "the calm ones are done")
	begun, err := os.ReadFile(filepath.Join(dir, "begun"))
	require.NoError(t, err)
	require.Equal(t, []string{"1", "1", "2", "3"}, strings.Fields(string(begun)))
	require.Equal(t, 4, starts)
}

// victim is the process that is killed. It ends when nothing waits any more.
func victim(t *testing.T, dir string) {
	_, q := open(t, filepath.Join(dir, "store"))
	q.Handle("kills", func(_ context.Context, a *durable.Attempt) error {
		f, err := os.OpenFile(filepath.Join(dir, "begun"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = fmt.Fprintln(f, a.Number)
		}
		if err != nil {
			return err
		}
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		if err == nil {
			select {}
		}
		return err
	})
	q.Handle("slow", func(context.Context, *durable.Attempt) error { time.Sleep(100 * time.Millisecond); return nil })
	_, drain := run(t, q)
	require.Eventually(t, func() bool {
		for info, err := range q.All(within(t), durable.Filter{}) {
			if err != nil || info.State != durable.Dead {
				return false
			}
		}
		return true
	}, patience, 20*time.Millisecond, "all has ended")
	drain()
}
