package main

import (
	"bytes"
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

// A run is what a suite did once.
type run struct {
	passed, failed map[string]bool
	elapsed, cpu   time.Duration
}

// A row is what is to be said of a module. A trial that could not run has a reason.
type row struct {
	module
	imports, compileErrors int
	std, wheel             []run
	reason                 string
}

func (t trial) run(rounds int) row {
	r := row{module: t.module}
	std, wheel := filepath.Join(t.dir, "std"), filepath.Join(t.dir, "wheel")
	if err := t.fetch(std, wheel); err != nil {
		r.reason = err.Error()
		return r
	}
	var err error
	if r.imports, err = changeImports(wheel); err != nil {
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

// changeImports counts the import lines that it changed. It replaces the path alone, so a
// name before it stays, and so does the rest of the file.
func changeImports(dir string) (lines int, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && entry.Name() == "testdata" {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, source, parser.ImportsOnly)
		if err != nil {
			return err
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
		if end == 0 {
			return nil
		}
		return os.WriteFile(path, append(changed, source[end:]...), 0o644)
	})
	return lines, err
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
	r := run{passed: map[string]bool{}, failed: map[string]bool{}}
	for line := range strings.Lines(string(out)) {
		if folder, path, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			t.runPackage(&r, dir, folder, path)
		}
	}
	log.Printf("  %s: %d passed, %d failed, %v, CPU %v", what, len(r.passed), len(r.failed),
		r.elapsed.Round(time.Second), r.cpu.Round(10*time.Millisecond))
	return r
}

// verdict is how package testing ends a test. The framing of test2json puts it on a line of
// its own whatever the test has written.
var (
	verdict = regexp.MustCompile(`--- (PASS|FAIL): (\S+) \(`)
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
	if t.only != "" {
		args = append(args, "-test.run="+t.only)
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
	failed := len(r.failed)
	for _, found := range verdict.FindAllStringSubmatch(out.String(), -1) {
		if found[1] == "PASS" {
			r.passed[name+"."+found[2]] = true
		} else {
			r.failed[name+"."+found[2]] = true
		}
	}
	if panicked := crash.FindString(out.String()); err != nil && (panicked != "" || len(r.failed) == failed) {
		r.failed[name+" ended: "+strings.TrimPrefix(panicked, "\x16")] = true
	}
	if err != nil {
		log.Printf("  what it wrote: %s", keep(name, out.Bytes()))
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
