package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

func ofCheckout(t *testing.T) *rehearsal {
	var r *rehearsal
	require.NoError(t, attempt(func() { r = &rehearsal{root: root, origin: root, modules: workspace(root), version: "v0.3.1"} }))
	return r
}

// A module that is not in go.work is built by nobody, and one that is published is not
// without the others. The module benchmarks has a go.work of its own.
func TestWorkspaceListsEveryModule(t *testing.T) {
	r := ofCheckout(t)
	require.Equal(t, []string{"benchmarks"}, unlisted(t, root, r.modules), "go.work does not list the others")
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
	require.NotEmpty(t, r.requiredVersion())
	ordered := r.inOrder()
	require.Equal(t, r.modules[0], ordered[0])
	require.Len(t, ordered, len(r.published()))
}

// unlisted returns the folders below root that have a go.mod and are not in go.work.
func unlisted(t *testing.T, root string, modules []goModule) (dirs []string) {
	require.NoError(t, filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "go.mod" {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(name))
		if !slices.ContainsFunc(modules, func(m goModule) bool { return m.dir == filepath.ToSlash(dir) }) {
			dirs = append(dirs, filepath.ToSlash(dir))
		}
		return err
	}))
	return dirs
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
		require.Empty(t, readGoMod(root, m).Replace, "%s: go.work has the modules of the checkout", m.dir)
	}
}

// The go command adds the sum of each go.mod that it reads to go.work.sum, and a checkout that has
// changed cannot be released. make tidy adds all that go list -m all reads, which is more than other
// commands read. It leaves out the sums of modules that only go mod download fetches: they were 17 KB of
// the core's zip.
func TestWorkspaceSumsAreComplete(t *testing.T) {
	dir := t.TempDir()
	workspaces := []string{".", "benchmarks"}
	var names []string
	for _, workspace := range workspaces {
		names = append(names, filepath.Join(workspace, "go.work"), filepath.Join(workspace, "go.work.sum"))
	}
	for _, m := range append(ofCheckout(t).modules, goModule{dir: "benchmarks"}) {
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
	for _, workspace := range workspaces {
		list := exec.Command("go", "list", "-m", "all")
		list.Dir, list.Env = filepath.Join(dir, workspace), append(os.Environ(), "GOWORK=", "GOFLAGS=")
		out, err := list.CombinedOutput()
		require.NoError(t, err, "%s", out)
		name := filepath.Join(workspace, "go.work.sum")
		before, after := read(filepath.Join(root, name)), read(filepath.Join(dir, name))
		require.True(t, before == after, "go list -m all has added %d lines to %s: make tidy completes it",
			strings.Count(after, "\n")-strings.Count(before, "\n"), name)
	}
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
	modules := workspace(dir)
	require.Equal(t, []goModule{{".", "example.org/ours", true}, {"a", "example.org/ours/a", false}}, modules)
	require.Equal(t, "v1.2.3", modules[0].tag("v1.2.3"))
	require.Equal(t, "a/v1.2.3", modules[1].tag("v1.2.3"))

	write("b/c/go.mod", "module example.org/ours/b/c\n")
	require.Equal(t, []string{"b/c"}, unlisted(t, dir, modules))

	write("go.work", "go 1.26.0\nuse ./gone\n")
	require.ErrorContains(t, attempt(func() { workspace(dir) }), "gone/go.mod")
	write("go.work", "go 1.26.0\nuse ./a // private\n")
	require.ErrorContains(t, attempt(func() { workspace(dir) }), `go.work says of ./a: "// private"`)
}

// A README says how to get what is published, or how to use a checkout, and nothing else.
func TestReadmesSayHowToInstall(t *testing.T) {
	r := ofCheckout(t)
	r.version = r.requiredVersion()
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
		require.Contains(t, []string{r.fromCheckout(m), r.fromProxy(m)}, says, m.dir)
		require.NotEmpty(t, firstProgram(string(text)), m.dir)
	}
	require.Equal(t, 2, written, "the READMEs of the core and of durable")
}

// A program has the clients and servers of its own engines, and no others.
func TestForeign(t *testing.T) {
	r := ofCheckout(t)
	for _, m := range r.published() {
		nats, postgres := "", ""
		switch m.dir {
		case "durable/jetstream":
			postgres = "durable/postgres"
		case "durable/postgres":
			nats = "durable/jetstream"
		case "durable/cmd/twjobs": // works on both
		default:
			nats, postgres = "durable/jetstream", "durable/postgres"
		}
		require.Equal(t, nats, r.foreign(m, "example.org/consumer\ngithub.com/nats-io/nuid v1.0.1\n"), m.dir)
		require.Equal(t, postgres, r.foreign(m, "example.org/consumer\ngithub.com/jackc/pgpassfile v1.0.0\n"), m.dir)
		require.Empty(t, r.foreign(m, "example.org/consumer\ngithub.com/emirpasic/gods v1.18.1\n"), m.dir)
	}
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
	text := r.headChangelog(old)
	require.Regexp(t, `^# Changelog\n\n## Unreleased\n\n## v0\.2\.0 - \d{4}-\d\d-\d\d\n\n### Added\n\n- A thing\.\n\n## v0\.1\.0 - 2026-01-01\n\n- Another\.\n$`, text)
	require.Equal(t, text, r.headChangelog(text))

	r.version = "v0.3.0"
	require.ErrorContains(t, attempt(func() { r.headChangelog(text) }), "nothing is unreleased")
	require.ErrorContains(t, attempt(func() { r.headChangelog("# Changelog\n") }), "no line ## Unreleased")
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
		require.ErrorContains(t, attempt(func() { newRehearsal(root, t.TempDir(), version) }), "is no version such as v0.1.0", version)
	}
	require.Equal(t, "v0.9.0-rc.1", newRehearsal(root, t.TempDir(), "v0.9.0-rc.1").version)
}

// What the modules ask of each other is published later than it is needed. Without a
// replace the go command would ask a proxy for it, and not build anything.
func TestWorkspaceReplacesWhatIsAskedFor(t *testing.T) {
	r := ofCheckout(t)
	text := read(filepath.Join(root, "go.work"))
	for _, m := range r.modules {
		for needed, version := range r.wants(readGoMod(root, m)) {
			dir := strings.TrimPrefix(strings.TrimPrefix(needed, r.modules[0].path), "/")
			line := needed + " " + version + " => ./" + dir + "\n"
			if dir == "" {
				line = needed + " " + version + " => .\n"
			}
			require.Contains(t, text, line, "a replace in go.work, for %s", m.dir)
		}
	}
	require.Equal(t, strings.ReplaceAll(text, " "+r.requiredVersion()+" => ", " v0.3.1 => "), r.nameInWorkspace(text))
}
