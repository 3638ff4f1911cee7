package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The test is the program that it starts, too. The program ends by itself, fails, or waits for a
// real signal.
func TestMain(t *testing.M) {
	if how := os.Getenv("PROGRAM"); how != "" {
		os.Args = os.Args[:1]
		Main(func(ctx context.Context, out io.Writer) error {
			fmt.Fprintln(out, "ready")
			if how == "fail" {
				return errors.New("it fails")
			}
			if how == "wait" {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		return
	}
	os.Exit(t.Run())
}

func TestStatus(t *testing.T) {
	for how, want := range map[string]int{"end": 0, "fail": 1, "wait": 1} {
		if how == "wait" && runtime.GOOS == "windows" {
			continue // there is no way to send an interrupt
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "PROGRAM="+how)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		errs, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		_, err = io.ReadFull(out, make([]byte, len("ready\n")))
		require.NoError(t, err)
		if how == "wait" {
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
		}
		rest, err := io.ReadAll(errs)
		require.NoError(t, err)
		_ = cmd.Wait()
		require.Equal(t, how == "wait", strings.Contains(string(rest), "context canceled"))
		require.Equal(t, want, cmd.ProcessState.ExitCode(), how)
	}
}
