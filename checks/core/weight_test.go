package core

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program that logs a line by log/slog grows by at most 520 KB with a wheel. The README
// says by how much.
func TestWeight(t *testing.T) {
	const without = `package main

import "log/slog"

func main() { slog.Info("hello") }
`
	const with = `package main

import (
	"log/slog"
	"time"

	"` + module + `timingwheel"
)

func main() {
	w := timingwheel.New()
	done := make(chan bool)
	w.AfterFunc(time.Second, func() { slog.Info("hello"); done <- true })
	<-done
	w.Stop()
}
`
	before, after := weigh(t, without), weigh(t, with)
	t.Logf("%d KB without a wheel, %d with one", before/1000, after/1000)
	require.LessOrEqual(t, after-before, int64(520_000))
}

// weigh returns the size of a program, for one system, so that it is the same everywhere.
func weigh(t *testing.T, source string) int64 {
	dir := t.TempDir()
	main, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(main, []byte(source), 0o644))
	build := exec.Command("go", "build", "-trimpath", "-o", program, main)
	build.Dir = root
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	info, err := os.Stat(program)
	require.NoError(t, err)
	return info.Size()
}
