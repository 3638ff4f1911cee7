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
		"| command | go run . " + strings.ReplaceAll(strings.Join(args, " "), "|", `\|`), "| wheel.Schedule | ", "| RussellLuo | ",
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

func TestMerge(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	for _, args := range [][]string{
		{"-run", "AtOnce", "-subjects", "time|wheel"}, {"-run", "Contexts", "-merge"}, {"-run", "AtOnce", "-merge"},
	} {
		if err := command(append(args, "-size", "tiny", "-rounds", "1", "-out", dir), &out); err != nil {
			t.Fatal(err)
		}
	}
	set, err := recorded(dir)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]int{}
	for _, l := range set.Lines {
		lines[l.Key.String()]++
	}
	for _, key := range []string{
		"AtOnce/delay=0/subject=time.AfterFunc", "AtOnce/delay=0/subject=heap", "Contexts/op=err/subject=wheel.WithTimeout",
	} {
		if lines[key] != 1 {
			t.Errorf("%d lines of %s, want 1", lines[key], key)
		}
	}
	if !strings.HasSuffix(set.Setting("Contexts"), ", go run . -run Contexts -merge -size tiny -rounds 1 -out "+dir) {
		t.Errorf("of the contexts is noted %q", set.Setting("Contexts"))
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-size", "huge"}, {"-run", "("}, {"-subjects", "("}, {"-report", "-out", t.TempDir()}, {"-child", "Nothing"},
		{"-merge", "-out", t.TempDir()}, {"-merge", "-subjects", "heap"},
	} {
		if err := command(args, &bytes.Buffer{}); err == nil {
			t.Errorf("no error for %v", args)
		}
	}
}
