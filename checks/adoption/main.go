// Command adoption puts other people's programs on the wheel and lets their own suites judge.
// programs.json lists them. It copies each module twice into a temporary folder, and changes
// the imports "time" and "context" in one copy to those of folder dropin, tests included: a
// test shares types, such as *time.Timer, with what it tests. Then it runs the suites of both
// copies, and prints a table.
//
// A test that fails is run alone, by turns, -alone times with each copy. It counts as ours only
// if it fails more often on the wheel than chance explains. The command fails if it finds such
// a test that programs.json does not name.
//
//	go run ./adoption -run 'yamux|gocron'
//
// The tests run in a network namespace of their own that has nothing but loopback. So the
// command needs Linux, unshare, ip, and root. Both copies are built for the Go version of
// this module, so that package time behaves alike in both, and without go vet, which knows
// package context by its path.
package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed programs.json
var list []byte

// A program is a module whose suite runs on a machine that has nothing but loopback.
type program struct {
	Module, Version string
	Packages        []string // as go test has them
	Only, Without   string   // tests, as go test -run and -skip have them; empty: all, and none
	Because         string   // a sentence that says why
	Differs         string   // tests that are known to fail on the wheel
	Found           string   // what was found, as Markdown
}

func programs() (all []program) {
	check(json.Unmarshal(list, &all))
	return all
}

func main() {
	log.SetFlags(0)
	match := flag.String("run", "", "only modules that match this regular `expression`")
	alone := flag.Int("alone", 10, "runs of each test that has failed, alone and by turns")
	flag.Parse()
	root := must(filepath.Abs(".."))
	temporary := must(os.MkdirTemp("", "adoption"))
	defer os.RemoveAll(temporary)
	var trials []*trial
	unknown := false
	for _, p := range programs() {
		if regexp.MustCompile(*match).MatchString(p.Module) {
			log.Printf("%s %s", p.Module, p.Version)
			t := &trial{program: p}
			t.run(root, filepath.Join(temporary, strings.ReplaceAll(p.Module, "/", "_")), *alone)
			trials, unknown = append(trials, t), unknown || t.differs()
		}
	}
	report(os.Stdout, trials, *alone)
	if unknown {
		log.Panic("a test fails on the wheel that programs.json does not name")
	}
}

// report writes what the suites have done as Markdown.
func report(out io.Writer, trials []*trial, times int) {
	fmt.Fprintln(out, "| module | version | import lines | package time: passed, failed | the wheel: passed, failed | elapsed, s | CPU, s |")
	fmt.Fprintln(out, "| --- | --- | ---: | ---: | ---: | ---: | ---: |")
	for _, t := range trials {
		std, wheel := &t.sides[0], &t.sides[1]
		fmt.Fprintf(out, "| %s | %s | %d | ", strings.TrimPrefix(t.Module, "github.com/"), t.Version, t.lines)
		if t.reason != nil {
			fmt.Fprintf(out, "%v | | | |\n", t.reason)
			continue
		}
		fmt.Fprintf(out, "%d, %d | %d, %d | %.1f, %.1f | %.1f, %.1f |\n", std.passed, len(std.failed), wheel.passed, len(wheel.failed),
			std.elapsed.Seconds(), wheel.elapsed.Seconds(), std.cpu.Seconds(), wheel.cpu.Seconds())
	}
	for _, t := range trials {
		fmt.Fprintf(out, "\n- **%s** (`%s`). %s\n", t.Module, strings.Join(t.Packages, " "), strings.TrimSpace(t.Because+" "+t.Found))
		for of, failed := range t.alone {
			fmt.Fprintf(out, "  - `%s` failed, and alone %d times of %d with package time, %d on the wheel\n", of.name, failed[0], times, failed[1])
		}
	}
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
