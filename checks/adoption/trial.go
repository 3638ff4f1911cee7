package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const core = "github.com/tickwheel/tickwheel"

// A trial is one module, with package time in one copy and on the wheel in another.
type trial struct {
	module
	root, dir, only string
}

// A run is what a suite did once. Tests have the name of their package before them.
type run struct {
	passed, failed, skipped map[string]bool
	elapsed, cpu            time.Duration
}

func newRun() run {
	return run{passed: map[string]bool{}, failed: map[string]bool{}, skipped: map[string]bool{}}
}

// A row is what is to be said of a module. A trial that could not run has a reason.
type row struct {
	module
	imports, built int // import lines that were changed, and those of them in what the tests are built of
	compileErrors  int
	std, wheel     []run
	reason         string
}

func (t trial) run(rounds int) row {
	r := row{module: t.module}
	r.tests = cmp.Or(t.only, t.tests)
	std, wheel := filepath.Join(t.dir, "std"), filepath.Join(t.dir, "wheel")
	if err := t.fetch(std, wheel); err != nil {
		r.reason = err.Error()
		return r
	}
	changed, err := changeImports(wheel)
	if err != nil {
		r.reason = err.Error()
		return r
	}
	for _, dir := range []string{std, wheel} {
		if out, err := t.build(dir); err != nil {
			log.Printf("%s", out)
			r.compileErrors = len(positions.FindAll(out, -1))
			r.reason = filepath.Base(dir) + " does not build"
			return r
		}
	}
	if r.imports, r.built, err = t.count(wheel, changed); err != nil {
		r.reason = err.Error()
		return r
	}
	for i := range rounds {
		r.std = append(r.std, t.suite(std, fmt.Sprintf("package time, round %d", i+1)))
		r.wheel = append(r.wheel, t.suite(wheel, fmt.Sprintf("the wheel, round %d", i+1)))
	}
	return r
}

var positions = regexp.MustCompile(`(?m)^\S+\.go:\d+:\d+: `)

// fetch copies the module into both folders. The copy on the wheel takes the core module
// from the checkout; the other one has the same go.mod but for that, so that both have the
// same dependencies.
func (t trial) fetch(std, wheel string) error {
	download := exec.Command("go", "mod", "download", "-json", t.path+"@"+t.version)
	download.Dir = os.TempDir()
	out, err := download.Output()
	var answer struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &answer); jsonErr != nil || answer.Error != "" {
		return fmt.Errorf("go mod download: %v %s", err, answer.Error)
	}
	for _, dir := range []string{std, wheel} {
		if err := os.CopyFS(dir, os.DirFS(answer.Dir)); err != nil {
			return err
		}
		edit := command(dir, "go", "mod", "edit", "-go=1.26.0", "-toolchain=none",
			"-require="+core+"@v0.0.0", "-replace="+core+"="+t.root)
		if out, err := edit.CombinedOutput(); err != nil {
			return fmt.Errorf("go mod edit: %w %s", err, out)
		}
	}
	return nil
}

// changeImports returns the number of import lines that it changed in each file. A file of
// a folder testdata is no part of the module, and stays.
func changeImports(dir string) (changed map[string]int, err error) {
	changed = map[string]int{}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == "testdata" {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		lines, err := changeImportsOf(path)
		if lines > 0 {
			changed[path] = lines
		}
		return err
	})
	return changed, err
}

// changeImportsOf replaces the path alone, so a name before it stays, and so does the rest
// of the file.
func changeImportsOf(path string) (lines int, err error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.ImportsOnly)
	if err != nil {
		return 0, err
	}
	changed, end := []byte{}, 0
	for _, spec := range file.Imports {
		if spec.Path.Value != `"time"` && spec.Path.Value != `"context"` {
			continue
		}
		at := files.Position(spec.Path.Pos()).Offset
		changed = append(changed, source[end:at]...)
		changed = append(changed, `"`+core+`/dropin/`...)
		end = at + 1
		lines++
	}
	if lines == 0 {
		return 0, nil
	}
	return lines, os.WriteFile(path, append(changed, source[end:]...), 0o644)
}

// count adds up the import lines of all files, and those of the files of which the tests
// are built. The others are in packages that no test here needs, or for another system.
func (t trial) count(dir string, changed map[string]int) (all, built int, err error) {
	for _, lines := range changed {
		all += lines
	}
	list := command(dir, "go", append([]string{"list", "-mod=mod", "-deps", "-test", "-f",
		`{{range .GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}`}, t.packages...)...)
	out, err := list.Output()
	if err != nil {
		return 0, 0, fmt.Errorf("go list: %w", err)
	}
	return all, linesIn(string(out), changed), nil
}

// linesIn adds up the import lines of the files that are listed. A package that is built for
// several tests is listed several times.
func linesIn(list string, changed map[string]int) (lines int) {
	counted := map[string]bool{}
	for line := range strings.Lines(list) {
		if path := strings.TrimSpace(line); !counted[path] {
			counted[path] = true
			lines += changed[path]
		}
	}
	return lines
}

// build makes a binary of each package's tests. They run without the go command then,
// whose own work would count as the suite's.
func (t trial) build(dir string) ([]byte, error) {
	binaries := filepath.Join(dir, ".adoption") + string(filepath.Separator)
	if err := os.MkdirAll(binaries, 0o755); err != nil {
		return nil, err
	}
	args := append([]string{"test", "-mod=mod", "-vet=off", "-c", "-o", binaries}, t.packages...)
	return command(dir, "go", args...).CombinedOutput()
}

func command(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	return cmd
}

// suite runs the tests of all packages of a copy, one package after another.
func (t trial) suite(dir, what string) run {
	list := command(dir, "go", append([]string{"list", "-mod=mod", "-f",
		`{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{.ImportPath}}{{end}}`}, t.packages...)...)
	out, err := list.Output()
	if err != nil {
		log.Fatalf("go list: %v", err)
	}
	r := newRun()
	for line := range strings.Lines(string(out)) {
		if folder, path, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			t.runPackage(&r, dir, folder, path)
		}
	}
	log.Printf("  %s: %d passed, %d failed, %v, CPU %v", what, len(r.passed), len(r.failed),
		r.elapsed.Round(time.Second), r.cpu.Round(10*time.Millisecond))
	return r
}

// verdict is how package testing ends a test. The framing of test2json is a byte before it,
// whatever the test has written on the same line.
var (
	verdict = regexp.MustCompile(`\x16--- (PASS|FAIL|SKIP): (\S+) \(`)
	crash   = regexp.MustCompile(`(?m)^(?:\x16)?(panic|fatal error): .*`)
)

func (t trial) runPackage(r *run, dir, folder, path string) {
	name := testName(path)
	binary := filepath.Join(dir, ".adoption", name+".test")
	args := []string{"--net", "sh", "-c", `ip link set lo up && exec "$@"`, "sh", binary,
		"-test.short", "-test.v=test2json", "-test.timeout=10m"}
	if t.skip != "" {
		args = append(args, "-test.skip="+t.skip)
	}
	if only := cmp.Or(t.only, t.tests); only != "" {
		args = append(args, "-test.run="+only)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 11*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", args...)
	cmd.Dir = folder
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	err := cmd.Run()
	r.elapsed += time.Since(start)
	if cmd.ProcessState == nil {
		log.Fatalf("unshare: %v", err)
	}
	r.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	r.read(name, out.String(), err != nil)
	if err != nil {
		log.Printf("  what it wrote: %s", keep(name, out.Bytes()))
	}
}

// read notes what became of the tests of a package. If the process has failed, and no test
// says why, or it has panicked, that counts as a test that failed.
func (r *run) read(name, out string, bad bool) {
	failed := len(r.failed)
	for _, found := range verdict.FindAllStringSubmatch(out, -1) {
		test := name + "." + found[2]
		switch found[1] {
		case "PASS":
			r.passed[test] = true
		case "FAIL":
			r.failed[test] = true
		default:
			r.skipped[test] = true
		}
	}
	if panicked := crash.FindString(out); bad && (panicked != "" || len(r.failed) == failed) {
		r.failed[name+" ended: "+strings.TrimPrefix(panicked, "\x16")] = true
	}
}

// keep leaves the output of a suite that failed in a file of its own.
func keep(name string, output []byte) string {
	file, err := os.CreateTemp("", "adoption-"+name+"-*.log")
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if _, err := file.Write(output); err != nil {
		return err.Error()
	}
	return file.Name()
}

// testName is what go test -c calls the tests of a package: the last element of its path
// that is no version.
func testName(path string) string {
	elements := strings.Split(path, "/")
	name := elements[len(elements)-1]
	if version.MatchString(name) {
		return elements[len(elements)-2]
	}
	return name
}

var version = regexp.MustCompile(`^v\d+$`)
