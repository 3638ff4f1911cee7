package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const ofPeers = `go: go1.26.8
cores: 2
date: 2026-11-28 12:00 UTC
load: 0.10
versions: libuv1 1.44
BenchmarkPeers/add0/subject=wheel.Schedule/round=1-2 1 60 cpu-ns/op
BenchmarkPeers/fire/subject=wheel.Schedule/round=1-2 1 200 cpu-ns/timer
BenchmarkPeers/fire/subject=wheel.Schedule/round=1-2 1 9 p99-ms
BenchmarkPeers/early/subject=wheel.Schedule/round=1-2 1 0 early
BenchmarkPeers/random/subject=wheel.Schedule/round=1-2 1 400 cpu-ns/op
BenchmarkPeers/idle1M/subject=wheel.Schedule/round=1-2 1 0.05 cpu-ms/s
BenchmarkPeers/add0/subject=libuv/round=1-2 1 70 cpu-ns/op
BenchmarkPeers/early/subject=libuv/round=1-2 1 7106 early
BenchmarkPeers/random/subject=libuv/round=1-2 1 90000 cpu-ns/op
BenchmarkPeers/add0/subject=wheel.Schedule/round=2-2 1 90 cpu-ns/op
BenchmarkPeers/add0/subject=libuv/round=2-2 1 70 cpu-ns/op
BenchmarkPeers/add0/subject=wheel.Schedule/round=3-2 1 50 cpu-ns/op
BenchmarkPeers/add0/subject=libuv/round=3-2 1 80 cpu-ns/op
`

// The report has a row for each system, with the median of the rounds and no figure where none
// was measured; without results it has no section.
func TestPeers(t *testing.T) {
	out := t.TempDir()
	var page strings.Builder
	if err := writePeers(&page, out); err != nil || page.Len() > 0 {
		t.Fatalf("without results: %v\n%s", err, page.String())
	}
	for _, folder := range []string{"peers", "results"} {
		if err := os.Mkdir(filepath.Join(out, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(out, "peers", "results.txt"), []byte(ofPeers), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writePeers(&page, out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"go1.26.8, libuv1 1.44.\nOn 2026-11-28 12:00 UTC, the load before was 0.10.",
		"| wheel.Schedule | 60 ±50% |  | 400 |  | 200 |  |\n| libuv | 70 ±14% |  | 90,000 |  |  |  |\n",
		"| wheel.Schedule | 9 |  | 0 |  |  |  | 0.05 |\n| libuv |  |  | 7,106 |  |  |  |  |\n",
		"](results/peers-random.svg)",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the section lacks %q:\n%s", want, page.String())
		}
	}
	for file, wants := range map[string][]string{
		"peers-random.svg": {"wheel.Schedule: 400", "libuv: 90,000"},
		"peers-idle.svg":   {"wheel.Schedule: 0.05"},
	} {
		content, err := os.ReadFile(filepath.Join(out, "results", file))
		for _, want := range wants {
			if err != nil || !strings.Contains(string(content), want) {
				t.Errorf("%s lacks %q (%v)", file, want, err)
			}
		}
	}
}
