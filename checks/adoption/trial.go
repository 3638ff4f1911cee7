package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const core = "github.com/tickwheel/tickwheel"

// A trial is one program, with package time in one copy and on the wheel in another.
type trial struct {
	program
	sides  [2]side          // package time, the wheel
	alone  map[test]*[2]int // how often a test failed, with its subtests, that was run alone
	lines  int              // import lines that were changed
	reason any              // why the suites did not run
}

type side struct {
	dir          string
	packages     []string // the folders of those that have tests
	passed       int
	failed       map[test]bool
	elapsed, cpu time.Duration
}

type test struct {
	pkg  int // its place among the packages
	name string
}

func (t *trial) run(root, dir string, times int) {
	defer func() {
		if t.reason = recover(); t.reason != nil {
			log.Print(t.reason)
		}
	}()
	t.alone = map[test]*[2]int{}
	for i := range t.sides {
		s := &t.sides[i]
		s.dir, s.failed = filepath.Join(dir, fmt.Sprint(i)), map[test]bool{}
		t.make(s, root)
		for pkg := range s.packages {
			if wrote := t.runPackage(s, pkg, t.Only, 10*time.Minute); wrote != nil {
				file := must(os.CreateTemp("", "adoption-*.log"))
				check(os.WriteFile(file.Name(), wrote, 0o644))
				log.Printf("  it wrote %s", file.Name())
			}
		}
		log.Printf("  %d passed, %d failed, %v, CPU %v", s.passed, len(s.failed), s.elapsed.Round(time.Second), s.cpu.Round(10*time.Millisecond))
		for of := range s.failed {
			of.name, _, _ = strings.Cut(of.name, "/")
			t.alone[of] = new([2]int)
		}
	}
	for of, failed := range t.alone {
		for range times {
			for i := range t.sides {
				s := t.sides[i]
				s.failed = map[test]bool{}
				if t.runPackage(&s, of.pkg, "^"+of.name+"$", 2*time.Minute); len(s.failed) > 0 {
					failed[i]++
				}
			}
		}
		log.Printf("  %s alone: %v of %d", of.name, *failed, times)
	}
}

// differs reports whether there is a test that fails on the wheel and is not known to.
func (t *trial) differs() bool {
	for of, failed := range t.alone {
		if isOurs(*failed) && (t.Differs == "" || !regexp.MustCompile(t.Differs).MatchString(of.name)) {
			return true
		}
	}
	return false
}

// isOurs reports whether a test fails more often on the wheel than a coin would have it: by
// more than two standard deviations.
func isOurs(failed [2]int) bool {
	more := failed[1] - failed[0]
	return more > 0 && more*more > 4*(failed[0]+failed[1])
}

// make copies the module, changes the imports if the copy is to be on the wheel, and makes a
// binary of each package's tests: they run without the go command, whose own work would count
// as theirs. Both copies get the same go.mod, and so the same dependencies.
func (t *trial) make(s *side, root string) {
	out := must(command(os.TempDir(), "go", "mod", "download", "-json", t.Module+"@"+t.Version))
	var answer struct{ Dir string }
	check(json.Unmarshal(out, &answer))
	check(os.CopyFS(s.dir, os.DirFS(answer.Dir)))
	must(command(s.dir, "go", "mod", "edit", "-go=1.26.0", "-toolchain=none", "-require="+core+"@v0.0.0", "-replace="+core+"="+root))
	if s == &t.sides[1] {
		t.changeImports(s)
	}
	s.packages = t.list(s, "-mod=mod", "-f={{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}")
	for i, folder := range s.packages {
		if _, err := command(folder, "go", "test", "-mod=mod", "-vet=off", "-c", "-o", s.binary(i), "."); err != nil {
			log.Print(err)
			panic(fmt.Sprint(len(regexp.MustCompile(`(?m)^\S+\.go:\d+:\d+: `).FindAllString(err.Error(), -1)), " lines do not compile"))
		}
	}
}

func (s *side) binary(pkg int) string { return filepath.Join(s.dir, fmt.Sprintf(".%d.test", pkg)) }

func command(dir, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); ok {
		err = fmt.Errorf("%s: %w: %s", cmd, err, append(out, exit.Stderr...))
	}
	return out, err
}

// list returns the lines that go list says of the packages.
func (t *trial) list(s *side, args ...string) []string {
	out := must(command(s.dir, "go", append(append([]string{"list"}, args...), t.Packages...)...))
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}

var (
	declarations = regexp.MustCompile(`(?m)^import[ \t]*(?:\([^)]*|[^(\n]*)`)
	imports      = regexp.MustCompile(`(?m)^((?:import)?[ \t]+(?:[\w.]+ )?")(time|context)"`)
)

// changeImports changes the files of the module of which the tests are built.
func (t *trial) changeImports(s *side) {
	files := t.list(s, "-mod=mod", "-deps", "-test",
		`-f={{with .Module}}{{if .Main}}{{range $.GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`)
	for _, file := range files { // one that is built for several tests comes several times
		source, err := os.ReadFile(file)
		if err != nil {
			continue // what the go command makes of them
		}
		check(os.WriteFile(file, t.changed(source), 0o644))
	}
}

// changed returns source with other imports. Only the path changes, so that a name before it stays.
func (t *trial) changed(source []byte) []byte {
	return declarations.ReplaceAllFunc(source, func(declaration []byte) []byte {
		t.lines += len(imports.FindAll(declaration, -1))
		return imports.ReplaceAll(declaration, []byte("${1}"+core+`/dropin/${2}"`))
	})
}

// runPackage runs the tests of a package, all or some. If they fail, or take longer than limit,
// it returns what they wrote.
func (t *trial) runPackage(s *side, pkg int, only string, limit time.Duration) (wrote []byte) {
	cmd := exec.Command("unshare", "--net", "sh", "-c", `ip link set lo up && exec "$@"`, "sh", s.binary(pkg),
		"-test.short", "-test.v=test2json", "-test.timeout="+limit.String(), "-test.run="+only, "-test.skip="+t.Without)
	cmd.Dir, cmd.WaitDelay = s.packages[pkg], time.Minute // for a process that it leaves running
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start, before := time.Now(), len(s.failed)
	err := cmd.Run()
	if cmd.ProcessState == nil {
		log.Panicf("unshare: %v", err)
	}
	s.elapsed += time.Since(start)
	s.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	last := s.read(pkg, out.String())
	if err != nil {
		if len(s.failed) == before {
			s.failed[last] = true
		}
		return out.Bytes()
	}
	return nil
}

// verdict is how package testing begins and ends a test. The framing of test2json is a byte
// before it, whatever the test has written on the same line.
var verdict = regexp.MustCompile(`\x16(?:--- (PASS|FAIL|SKIP): |=== RUN +)(\S+)`)

// read notes what became of the tests of a package. It returns the one that began last: if
// the process fails and no test says why, it is taken for that one.
func (s *side) read(pkg int, out string) (last test) {
	for _, found := range verdict.FindAllStringSubmatch(out, -1) {
		of := test{pkg, found[2]}
		switch found[1] {
		case "PASS":
			s.passed++
		case "FAIL":
			s.failed[of] = true
		case "":
			last = of
		}
	}
	return last
}
