package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

// A rehearsal has all that it makes in one temporary folder.
type rehearsal struct {
	root    string // the checkout, which is only read, but for the end of prepare and tidy
	origin  string // the repository that everybody gets the modules from
	proxy   string // what a GOPROXY serves
	cache   string // the module cache of those who have never seen us
	scratch string // a folder for each consumer

	modules []goModule
	version string
}

func newRehearsal(root, temporary, version string) *rehearsal {
	r := &rehearsal{root: root, version: version, modules: workspace(root)}
	for dir, name := range map[*string]string{&r.origin: "origin", &r.proxy: "proxy", &r.cache: "cache", &r.scratch: "consumers"} {
		*dir = filepath.Join(temporary, name)
		must(os.Mkdir(*dir, 0o700))
	}
	ensure(r.modules[0].dir == ".", "go.work lists %s before the core", r.modules[0].dir)
	if version == "" {
		r.version = r.requiredVersion()
	}
	ensure(semver.IsValid(r.version) && semver.Canonical(r.version) == r.version && semver.Major(r.version) <= "v1", "%q is no version such as v0.1.0", r.version)
	return r
}

// requiredVersion is the one that the modules ask of the core.
func (r *rehearsal) requiredVersion() (version string) {
	for _, m := range r.modules {
		for needed, v := range r.wants(readGoMod(r.root, m)) {
			ensure(version == "" || v == version, "%s asks for %s %s, and another module for %s", m.dir, needed, v, version)
			version = v
		}
	}
	return version
}

// copyCheckout puts the files of the checkout into a new repository: those that git
// tracks, as they are now, and new ones that it does not ignore.
func (r *rehearsal) copyCheckout() {
	list := get(run(r.root, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"))
	for name := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(r.root, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		must(err)
		must(os.MkdirAll(filepath.Dir(filepath.Join(r.origin, name)), 0o700))
		must(os.WriteFile(filepath.Join(r.origin, name), data, 0o600))
	}
	get(run(r.origin, nil, "git", "init", "-q"))
	r.commit("the checkout")
}

// bin is where go install puts programs.
func (r *rehearsal) bin() string { return filepath.Join(r.scratch, "bin") }

func (r *rehearsal) commit(message string) {
	get(run(r.origin, nil, "git", "add", "-A"))
	get(run(r.origin, nil, "git", "-c", "user.name=release", "-c", "user.email=release@localhost",
		"commit", "-q", "--allow-empty", "-m", message))
}

// publish makes the commit of the release, with its tags, and the zips.
func (r *rehearsal) publish() {
	r.nameVersion()
	ordered := r.inOrder()
	for _, m := range ordered {
		log.Print("publishing ", m.tag(r.version))
		r.tidyModule(m)
		r.commit(m.tag(r.version))
		r.serve(m)
	}
	for _, m := range ordered {
		get(run(r.origin, nil, "git", "tag", m.tag(r.version)))
		r.inspect(m)
	}
}

// nameVersion writes the version to where it stands, in the origin. The sums of ours go,
// since they are of files that have changed.
func (r *rehearsal) nameVersion() {
	for _, m := range r.modules {
		file := readGoMod(r.origin, m)
		for needed := range r.wants(file) {
			must(file.AddRequire(needed, r.version))
		}
		must(os.WriteFile(filepath.Join(r.origin, m.dir, "go.mod"), get(file.Format()), 0o600))
		r.dropSums(m)
	}
	for name, change := range map[string]func(string) string{"CHANGELOG.md": r.headChangelog, "go.work": r.nameInWorkspace} {
		rewrite(filepath.Join(r.origin, name), change)
	}
	for _, m := range r.published() {
		r.installPublished(m)
	}
}

func read(name string) string { return string(get(os.ReadFile(name))) }

func rewrite(name string, change func(string) string) {
	must(os.WriteFile(name, []byte(change(read(name))), 0o600))
}

// dropSums takes those of ours out of a module's go.sum.
func (r *rehearsal) dropSums(m goModule) {
	name := filepath.Join(r.origin, m.dir, "go.sum")
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		rewrite(name, r.withoutOurs)
	}
}

// withoutOurs returns the lines of a go.sum that are about others.
func (r *rehearsal) withoutOurs(sums string) string {
	var b strings.Builder
	for line := range strings.Lines(sums) {
		if name, _, _ := strings.Cut(line, " "); !r.ours(name) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// tidyModule has the go command write the sums of ours into a published module's go.sum,
// and finds out whether it would change anything else.
func (r *rehearsal) tidyModule(m goModule) {
	before := r.dependencies(m)
	r.asStranger(filepath.Join(r.origin, m.dir), "go", "mod", "tidy")
	ensure(r.dependencies(m) == before, "go mod tidy wants to change the dependencies of %s: make tidy does", m.path)
}

// dependencies is the go.mod of a module, and the sums of others.
func (r *rehearsal) dependencies(m goModule) string {
	dir := filepath.Join(r.origin, m.dir)
	return read(filepath.Join(dir, "go.mod")) + r.withoutOurs(read(filepath.Join(dir, "go.sum")))
}

// serve puts a module into the proxy, as it is in the last commit.
func (r *rehearsal) serve(m goModule) {
	must(os.MkdirAll(r.versions(m), 0o700))
	for name, data := range map[string][]byte{
		r.version + ".zip":  r.zip(m, "HEAD"),
		r.version + ".mod":  get(os.ReadFile(filepath.Join(r.origin, m.dir, "go.mod"))),
		r.version + ".info": fmt.Appendf(nil, `{"Version":%q,"Time":%q}`, r.version, time.Now().UTC().Format(time.RFC3339)),
		"list":              []byte(r.version + "\n"),
	} {
		must(os.WriteFile(filepath.Join(r.versions(m), name), data, 0o600))
	}
}

// versions is the folder of a module in the proxy.
func (r *rehearsal) versions(m goModule) string {
	return filepath.Join(r.proxy, get(module.EscapePath(m.path)), "@v")
}

// zip returns what the go command makes of a revision.
func (r *rehearsal) zip(m goModule, revision string) []byte {
	dir := m.dir
	if dir == "." {
		dir = ""
	}
	var b bytes.Buffer
	must(zip.CreateFromVCS(&b, module.Version{Path: m.path, Version: r.version}, r.origin, revision, dir))
	return b.Bytes()
}

// stranger is the environment of somebody who has never seen us: without the workspace,
// with a module cache of its own. Other people's modules come from the caches of this
// machine, if they are there. Paths are trimmed, so that what was compiled is found the next
// time, too, when the temporary folder has another name.
func (r *rehearsal) stranger() []string {
	theirs := get(run(r.root, nil, "go", "env", "GOMODCACHE", "GOPROXY"))
	cache, proxies, _ := strings.Cut(strings.TrimSpace(theirs), "\n")
	return []string{
		"GOENV=off", "GOWORK=off", "GOSUMDB=off", "GOPRIVATE=", "GONOPROXY=", "GOFLAGS=-modcacherw -trimpath -ldflags=-w",
		"GOMODCACHE=" + r.cache, "GOBIN=" + r.bin(),
		"GOPROXY=" + strings.Join([]string{url(r.proxy), url(filepath.Join(cache, "cache", "download")), proxies}, ","),
	}
}

func url(dir string) string { return "file://" + filepath.ToSlash(dir) }

// asStranger runs a command in that environment.
func (r *rehearsal) asStranger(dir, name string, args ...string) string {
	return get(run(dir, r.stranger(), name, args...))
}

// run returns what a command prints. An error has that, and what it complains of.
func run(dir string, environment []string, name string, args ...string) (string, error) {
	command := exec.Command(name, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), environment...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}
