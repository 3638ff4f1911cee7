package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// quickstart runs the program on a simulated clock.
func quickstart(ctx context.Context, stdin string, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(ctx, args, strings.NewReader(stdin), &out, &errs)
	return status, out.String(), errs.String()
}

func messages(stdout string) (all []string) {
	for line := range strings.Lines(stdout) {
		if words := strings.Fields(line); strings.HasSuffix(line, " late)\n") {
			all = append(all, strings.Join(words[1:len(words)-2], " "))
		}
	}
	return all
}

func TestSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		status, stdout, stderr := quickstart(t.Context(), "")
		require.Zero(t, status)
		require.Empty(t, stderr)
		require.Equal(t, []string{"start the day", "boil the kettle", "feed the cat", "water the plants", "buy milk"}, messages(stdout))
		require.Contains(t, stdout, "5 fired; late by min 0s, median 0s, p99 0s, max 0s\n")
		require.Equal(t, 1500*time.Millisecond, time.Since(start))
	})
}

func TestBadLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		input := "1s good\nsoon bad\n\n  # nothing here\n5 no unit\n-1s negative\n2s\r\n3s\tcall C#5  twice # a comment\n2s # no message\n"
		status, stdout, stderr := quickstart(t.Context(), input, "-")
		require.Equal(t, 1, status)
		require.Equal(t, []string{"good", "call C#5 twice"}, messages(stdout))
		require.Equal(t, `standard input:2: bad delay: time: invalid duration "soon"
standard input:5: bad delay: time: missing unit in duration "5"
standard input:6: bad delay: -1s is negative
standard input:7: no message after the delay
standard input:9: no message after the delay
`, stderr)
	})
}

func TestUnusualInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status, stdout, stderr := quickstart(t.Context(), "", "-")
		require.Zero(t, status)
		require.Equal(t, "0 fired\n", stdout)
		require.Empty(t, stderr)

		// A line that is too long ends the reading, and what came before it runs.
		status, stdout, stderr = quickstart(t.Context(), "1s fine\n2s "+strings.Repeat("x", 2<<20), "-")
		require.Equal(t, 1, status)
		require.Equal(t, []string{"fine"}, messages(stdout))
		require.Contains(t, stderr, "standard input:2: ")
	})
}

func TestFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "list")
	require.NoError(t, os.WriteFile(name, []byte("1h later\nnever wrong"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		status, stdout, stderr := quickstart(t.Context(), "", name)
		require.Equal(t, 1, status)
		require.Equal(t, []string{"later"}, messages(stdout))
		require.Contains(t, stderr, name+":2: ")

		status, _, stderr = quickstart(t.Context(), "", name+"-that-is-not-there")
		require.Equal(t, 1, status)
		require.Contains(t, stderr, "no such file")
	})
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"a", "b"}, {"-x"}, {"--help"}} {
		status, _, stderr := quickstart(t.Context(), "", args...)
		require.Equal(t, 2, status)
		require.Contains(t, stderr, "usage")
	}
}

func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Millisecond, cancel)
		status, stdout, _ := quickstart(ctx, "3s third\n1s first\n2s second", "-")
		require.Equal(t, 130, status)
		require.Equal(t, []string{"first"}, messages(stdout))
		require.Contains(t, stdout, "interrupted: 1 fired, 2 not\nnot run: second  (due in 500ms)\nnot run: third  (due in 1.5s)\n")
	})
}

// The real program, a real signal, and standard input that stays open.
func TestCtrlC(t *testing.T) {
	if os.Getenv("QUICKSTART_MAIN") != "" {
		os.Args = []string{"quickstart", "-"}
		main()
	}
	if runtime.GOOS == "windows" {
		t.Skip("there is no way to send an interrupt")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestCtrlC$")
	cmd.Env = append(os.Environ(), "QUICKSTART_MAIN=1")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.WriteString(stdin, "1h much later\n0s now\n")
	require.NoError(t, err)
	buf := make([]byte, 4096)
	n, err := stdout.Read(buf) // the reminder that was due at once
	require.NoError(t, err)
	require.Contains(t, string(buf[:n]), "now")
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(stdout)
	require.NoError(t, err)
	require.Contains(t, string(rest), "not run: much later")
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, 130, exit.ExitCode())
}
