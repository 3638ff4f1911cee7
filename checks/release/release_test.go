package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

func ofCheckout(t *testing.T) *rehearsal {
	modules, err := workspace(root)
	require.NoError(t, err)
	return &rehearsal{root: root, origin: root, modules: modules, version: "v0.3.1"}
}

// A module that is not in go.work is built by nobody, and one that is published is not
// without the others.
func TestWorkspaceListsEveryModule(t *testing.T) {
	r := ofCheckout(t)
	dirs, err := unlisted(root, r.modules)
	require.NoError(t, err)
	require.Empty(t, dirs, "go.work does not list them")
	require.Equal(t, ".", r.modules[0].dir)
	paths := map[string]string{}
	for _, m := range r.modules {
		paths[m.path] = m.dir
		want := r.modules[0].path
		if m.dir != "." {
			want += "/" + m.dir
		}
		require.Equal(t, want, m.path, "the go.mod of %s: the go command would not find it by its path", m.dir)
	}
	require.Len(t, paths, len(r.modules))
	version, err := r.requiredVersion()
	require.NoError(t, err)
	require.NotEmpty(t, version)
	ordered := r.inOrder()
	require.Equal(t, r.modules[0], ordered[0])
	require.Len(t, ordered, len(r.published()))
}

// An error ends the command, and only that is one.
func TestAttempt(t *testing.T) {
	require.NoError(t, attempt(func() { require.Equal(t, 1, get(1, nil)) }))
	require.ErrorIs(t, attempt(func() { get(os.Open("there-is-none")); t.Error("goes on") }), os.ErrNotExist)
	require.Panics(t, func() { _ = attempt(func() { panic("a bug") }) })
}

// What go install and a consumer cannot work with is found before anything is fetched.
func TestNoModuleReplaces(t *testing.T) {
	r := ofCheckout(t)
	for _, m := range r.modules {
		file, err := readGoMod(root, m)
		require.NoError(t, err)
		require.Empty(t, file.Replace, "%s: go.work has the modules of the checkout", m.dir)
	}
}

// The go command adds the sum of each go.mod that it reads to go.work.sum, and a checkout that has
// changed cannot be released. make tidy adds all that go list -m all reads, which is more than other
// commands read. It leaves out the sums of modules that only go mod download fetches: they were 17 KB of
// the core's zip.
func TestWorkspaceSumsAreComplete(t *testing.T) {
	dir := t.TempDir()
	names := []string{"go.work", "go.work.sum"}
	for _, m := range ofCheckout(t).modules {
		names = append(names, filepath.Join(m.dir, "go.mod"), filepath.Join(m.dir, "go.sum"))
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if !strings.HasSuffix(name, "go.sum") || !os.IsNotExist(err) { // a module without dependencies has none
			require.NoError(t, err)
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	list := exec.Command("go", "list", "-m", "all")
	list.Dir, list.Env = dir, append(os.Environ(), "GOWORK=", "GOFLAGS=")
	out, err := list.CombinedOutput()
	require.NoError(t, err, "%s", out)
	before, err := os.ReadFile(filepath.Join(root, "go.work.sum"))
	require.NoError(t, err)
	after, err := os.ReadFile(filepath.Join(dir, "go.work.sum"))
	require.NoError(t, err)
	require.True(t, string(before) == string(after), "go list -m all has added %d lines to go.work.sum: make tidy completes it",
		strings.Count(string(after), "\n")-strings.Count(string(before), "\n"))
}

func TestWorkspaceSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("go.mod", "module example.org/ours\n")
	write("a/go.mod", "module example.org/ours/a\n")
	write("go.work", "go 1.26.0\nuse (\n\t.\n\t./a // not published\n)\n")
	modules, err := workspace(dir)
	require.NoError(t, err)
	require.Equal(t, []goModule{{".", "example.org/ours", true}, {"a", "example.org/ours/a", false}}, modules)
	require.Equal(t, "v1.2.3", modules[0].tag("v1.2.3"))
	require.Equal(t, "a/v1.2.3", modules[1].tag("v1.2.3"))

	write("b/c/go.mod", "module example.org/ours/b/c\n")
	dirs, err := unlisted(dir, modules)
	require.NoError(t, err)
	require.Equal(t, []string{"b/c"}, dirs)

	write("go.work", "go 1.26.0\nuse ./gone\n")
	_, err = workspace(dir)
	require.ErrorContains(t, err, "go.work lists ./gone: ")
	write("go.work", "go 1.26.0\nuse ./a // private\n")
	_, err = workspace(dir)
	require.ErrorContains(t, err, `go.work says of ./a: "// private"`)
}

// A README says how to get what is published, or how to use a checkout, and nothing else.
func TestReadmesSayHowToInstall(t *testing.T) {
	r := ofCheckout(t)
	var err error
	r.version, err = r.requiredVersion()
	require.NoError(t, err)
	written := 0
	for _, m := range r.published() {
		text, err := os.ReadFile(filepath.Join(root, m.dir, "README.md"))
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		before, says, after := install(string(text))
		require.Equal(t, string(text), before+says+after)
		if says == "" {
			continue
		}
		written++
		checkout, err := r.fromCheckout(m)
		require.NoError(t, err)
		require.Contains(t, []string{checkout, r.fromProxy(m)}, says, m.dir)
		require.NotEmpty(t, firstProgram(string(text)), m.dir)
	}
	require.Equal(t, 2, written, "the READMEs of the core and of durable")
}

func TestInstall(t *testing.T) {
	before, says, after := install("a\n" + installBegin + "b\n\n    c d\n" + installEnd + "e\n")
	require.Equal(t, []string{"a\n" + installBegin, "b\n\n    c d\n", installEnd + "e\n"}, []string{before, says, after})
	require.Equal(t, "c d\n", commands(says))
	before, says, after = install("a\n" + installBegin + "b\n")
	require.Equal(t, []string{"a\n" + installBegin + "b\n", "", ""}, []string{before, says, after})
}

func TestFirstProgram(t *testing.T) {
	const program = "package main\n\nfunc main() {}\n"
	require.Equal(t, program, firstProgram("a\n\n```go\nx := 1\n```\n\n```go\n"+program+"```\n"))
	require.Equal(t, program, firstProgram("a\n\n```go\n"+program+"```\nb\n```go\npackage main\n```\n"))
	require.Empty(t, firstProgram("a\n\n```go\nx := 1\n```\n"))
	require.Empty(t, firstProgram("a\n"))
}

func TestHeadChangelog(t *testing.T) {
	r := &rehearsal{version: "v0.2.0"}
	const old = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## v0.1.0 - 2026-01-01\n\n- Another.\n"
	text, err := r.headChangelog(old)
	require.NoError(t, err)
	require.Regexp(t, `^# Changelog\n\n## Unreleased\n\n## v0\.2\.0 - \d{4}-\d\d-\d\d\n\n### Added\n\n- A thing\.\n\n## v0\.1\.0 - 2026-01-01\n\n- Another\.\n$`, text)
	again, err := r.headChangelog(text)
	require.NoError(t, err)
	require.Equal(t, text, again)

	r.version = "v0.3.0"
	_, err = r.headChangelog(text)
	require.ErrorContains(t, err, "nothing is unreleased")
	_, err = r.headChangelog("# Changelog\n")
	require.ErrorContains(t, err, "no line ## Unreleased")
}

// The sums of ours are of a release, and those of others are what go mod tidy says.
func TestMergeSums(t *testing.T) {
	r := &rehearsal{modules: []goModule{{path: "example.org/n"}}}
	require.Equal(t,
		"example.org/m v1.1.0 h1:c=\nexample.org/n v0.1.0 h1:a=\nexample.org/n/sub v0.1.0 h1:b=\nexample.org/nn v1.0.0 h1:d=\n",
		r.mergeSums("example.org/m v1.0.0 h1:z=\nexample.org/n v0.1.0 h1:a=\nexample.org/n/sub v0.1.0 h1:b=\n",
			"example.org/m v1.1.0 h1:c=\nexample.org/n v0.1.0 h1:x=\nexample.org/nn v1.0.0 h1:d=\n"))
}

func TestVersion(t *testing.T) {
	for _, version := range []string{"0.1.0", "v0.1", "v2.0.0", "v0.1.0+x", "latest"} {
		_, err := newRehearsal(root, t.TempDir(), version)
		require.ErrorContains(t, err, "is no version such as v0.1.0", version)
	}
	r, err := newRehearsal(root, t.TempDir(), "v0.9.0-rc.1")
	require.NoError(t, err)
	require.Equal(t, "v0.9.0-rc.1", r.version)
}

// What the modules ask of each other is published later than it is needed. Without a
// replace the go command would ask a proxy for it, and not build anything.
func TestWorkspaceReplacesWhatIsAskedFor(t *testing.T) {
	r := ofCheckout(t)
	text, err := os.ReadFile(filepath.Join(root, "go.work"))
	require.NoError(t, err)
	for _, m := range r.modules {
		file, err := readGoMod(root, m)
		require.NoError(t, err)
		for needed, version := range r.wants(file) {
			dir := strings.TrimPrefix(strings.TrimPrefix(needed, r.modules[0].path), "/")
			line := needed + " " + version + " => ./" + dir + "\n"
			if dir == "" {
				line = needed + " " + version + " => .\n"
			}
			require.Contains(t, string(text), line, "a replace in go.work, for %s", m.dir)
		}
	}
	changed, err := r.nameInWorkspace(string(text))
	require.NoError(t, err)
	version, err := r.requiredVersion()
	require.NoError(t, err)
	require.Equal(t, strings.ReplaceAll(string(text), " "+version+" => ", " v0.3.1 => "), changed)
}
