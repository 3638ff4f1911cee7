// Peers measures the wheel beside the timers of Java and C from which it descends, and writes
// results.txt, of which go run . -report in the folder above makes the table and the picture of
// RESULTS.md. Each workload of each system has a process of its own; the systems follow each other
// in each round. To see that it works: go run ./peers -rounds 1 -out FILE, in the folder above.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// systems are in the order of the table.
var systems = []struct {
	language string
	names    []string
}{
	{"Go", []string{"wheel.Schedule", "wheel.Schedule+Inline", "time.AfterFunc"}},
	{"Java", []string{"netty", "jdk.Scheduled", "jdk.Scheduled+remove", "jdk.Timer"}},
	{"C", []string{"libuv", "libevent", "timerfd"}},
}

// jars are those of Netty, which needs JCTools where Debian packs it.
const jars = "/usr/share/java/netty-common.jar:/usr/share/java/jctools-core.jar"

// needed comes with make install-peers.
var needed = []string{"/usr/bin/javac", "/usr/bin/cc", "/usr/include/uv.h", "/usr/include/event2/event.h", "/usr/share/java/netty-common.jar"}

func main() {
	rounds := flag.Int("rounds", 5, "rounds in which the systems follow each other")
	out := flag.String("out", "peers/results.txt", "the `file` of the results")
	flag.Parse()
	if flag.NArg() == 2 { // one of the processes
		measure(flag.Arg(0), flag.Arg(1))
		return
	}
	if err := all(*out, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// all measures everything, and replaces the results only if nothing failed.
func all(file string, rounds int) error {
	folder, err := os.MkdirTemp("", "peers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	commands, err := build(folder)
	if err != nil {
		return err
	}
	results, err := about()
	if err != nil {
		return err
	}
	for round := 1; round <= rounds; round++ {
		for _, work := range []string{"add", "fire", "early", "memory", "idle"} {
			for _, s := range systems {
				for _, name := range s.names {
					args := append(slices.Clone(commands[s.language]), name, work)
					cmd := exec.Command(args[0], args[1:]...)
					cmd.Stderr = os.Stderr
					printed, err := cmd.Output()
					if err != nil {
						return fmt.Errorf("%s %s: %w", name, work, err)
					}
					results += benchmarkLines(string(printed), name, round, runtime.GOMAXPROCS(0))
				}
			}
			fmt.Printf("round %d of %d: %s\n", round, rounds, work)
		}
	}
	return os.WriteFile(file, []byte(results), 0o644)
}

func about() (string, error) {
	load, _ := os.ReadFile("/proc/loadavg")
	before, _, _ := strings.Cut(string(load), " ")
	versions, err := exec.Command("dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package} ${Version}\n",
		"openjdk-*-jdk-headless", "libnetty-java", "libuv1", "libevent-core-*").Output()
	if err != nil {
		return "", fmt.Errorf("dpkg-query: %w", err)
	}
	var installed []string
	for line := range strings.Lines(string(versions)) {
		if v, ok := strings.CutPrefix(line, "ii  "); ok {
			installed = append(installed, strings.TrimSpace(v))
		}
	}
	return fmt.Sprintf("go: %s\ncores: %d\ndate: %s\nload: %s\nversions: %s\n", runtime.Version(), runtime.GOMAXPROCS(0),
		time.Now().UTC().Format("2006-01-02 15:04 MST"), before, strings.Join(installed, ", ")), nil
}

// benchmarkLines turns "add0 cpu-ns/op 78.3" into a line as go test prints it.
func benchmarkLines(printed, system string, round, cores int) string {
	var lines strings.Builder
	for line := range strings.Lines(printed) {
		if f := strings.Fields(line); len(f) == 3 {
			fmt.Fprintf(&lines, "BenchmarkPeers/%s/subject=%s/round=%d-%d 1 %s %s\n", f[0], system, round, cores, f[2], f[1])
		}
	}
	return lines.String()
}

// build compiles the programs, and returns the command of each language, which takes a system and
// a workload.
func build(folder string) (map[string][]string, error) {
	for _, file := range needed {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("there is no %s: run make install-peers as root on Debian", file)
		}
	}
	inC := filepath.Join(folder, "c")
	for _, args := range [][]string{
		{"javac", "-d", folder, "-cp", jars, "peers/java/Main.java", "peers/java/Systems.java"},
		{"cc", "-O2", "-o", inC, "peers/c/main.c", "-luv", "-levent_core"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", args[0], err, out)
		}
	}
	return map[string][]string{"Go": {os.Args[0]}, "C": {inC}, "Java": {"java", "-Xms1g", "-Xmx4g", "-cp", folder + ":" + jars, "Main"}}, nil
}
