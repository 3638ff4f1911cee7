package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The children of the run below are this program too.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-child") {
		if err := command(os.Args[1:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	args := []string{
		"-size", "tiny", "-run", "AddCancel|Connections", "-subjects", "time|wheel|Luo", "-rounds", "1", "-out", dir,
	}
	if err := command(args, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"AddCancel   . 1 rounds", " 0 failed", " in all\n"} {
		if got := out.String(); !strings.Contains(got, want) {
			t.Errorf("the progress lacks %q:\n%s", want, got)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, resultsFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| command | go run . " + strings.Join(args, " "), "| wheel.Schedule | ", "| RussellLuo | ",
		"it has no such operation", "results/cost.svg",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if err := os.Remove(filepath.Join(dir, resultsFile)); err != nil {
		t.Fatal(err)
	}
	if err := command([]string{"-report", "-size", "tiny", "-out", dir}, &out); err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(filepath.Join(dir, resultsFile))
	if err != nil || !bytes.Equal(page, again) {
		t.Errorf("the report from the raw results differs: %v", err)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-size", "huge"}, {"-run", "("}, {"-subjects", "("}, {"-report", "-out", t.TempDir()}, {"-child", "Nothing"},
	} {
		if err := command(args, &bytes.Buffer{}); err == nil {
			t.Errorf("no error for %v", args)
		}
	}
}
