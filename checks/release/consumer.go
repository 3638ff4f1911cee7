package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"log"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// maxZip returns the largest size of a module's zip, in bytes. Pictures, programs that only developers
// run, and tests of the core that need no unexported name are in modules that are not published.
func maxZip(m goModule) int {
	if m.dir == "." {
		return 480_000
	}
	return 600_000
}

// ofEngine has, by the module of an engine, names in the paths of its client and of its server. A scanner
// reports each module that go list -m all names, used or not: so only programs on that engine have these.
var ofEngine = map[string]*regexp.Regexp{
	"durable/jetstream": regexp.MustCompile("nats-io|antithesis|go-tpm"),
	"durable/postgres":  regexp.MustCompile("jackc|lib/pq"),
}

// inspect looks at a module that was published: its zip, and its tests in a checkout of
// its tag, with the dependencies that it asks for and no newer ones.
func (r *rehearsal) inspect(m goModule) {
	zipped := r.zip(m, m.tag(r.version))
	ensure(string(zipped) == read(filepath.Join(r.versions(m), r.version+".zip")), "the zip of the tag is not the one that others have the sum of")
	ensure(len(zipped) <= maxZip(m), "its zip has %d bytes, and %d are the most", len(zipped), maxZip(m))
	files := get(zip.NewReader(bytes.NewReader(zipped), int64(len(zipped))))
	license := m.path + "@" + r.version + "/LICENSE"
	ensure(slices.ContainsFunc(files.File, func(f *zip.File) bool { return f.Name == license }), "its zip has no LICENSE")
	ensure(len(readGoMod(r.origin, m).Replace) == 0, "its go.mod has a replace, with which go install refuses it")
	log.Printf("the zip of %s has %d KB in %d files; %d KB are the most", m.tag(r.version), len(zipped)/1000, len(files.File), maxZip(m)/1000)
	r.asStranger(filepath.Join(r.origin, m.dir), "go", "vet", "./...")
}

// readme returns a module's README, or "".
func (r *rehearsal) readme(m goModule) string {
	text, err := os.ReadFile(filepath.Join(r.origin, m.dir, "README.md"))
	if !os.IsNotExist(err) {
		must(err)
	}
	return string(text)
}

// useCheckout does what the READMEs say about modules that are not published.
func (r *rehearsal) useCheckout() {
	for _, m := range r.published() {
		_, instructions, _ := install(r.readme(m))
		if !strings.Contains(instructions, checkoutPath) {
			continue
		}
		log.Print("from a checkout: ", m.path)
		c := r.newConsumer("checkout/" + m.path)
		c.follow(strings.ReplaceAll(instructions, checkoutPath, r.origin))
		c.runProgram(firstProgram(r.readme(m)))
	}
}

// use does what somebody does who needs a published module.
func (r *rehearsal) use(m goModule) {
	log.Print("from the proxy: ", m.path)
	c := r.newConsumer(m.path)
	c.run("go", "get", m.path+"@"+r.version)
	packages, commands := r.forOthers(m)
	c.importAll(packages)
	c.run("go", "mod", "verify")
	list := r.asStranger(c.dir, "go", "list", "-m", "all")
	log.Printf("its users have %d modules", strings.Count(list, "\n")-1)
	engine := r.foreign(m, list)
	ensure(engine == "", "they have some that only %s needs:\n%s", engine, list)
	r.installCommands(commands)
	if _, instructions, _ := install(r.readme(m)); r.readme(m) != "" {
		c = r.newConsumer("readme/" + m.path)
		c.follow(instructions)
		c.runProgram(firstProgram(r.readme(m)))
	}
}

// foreign returns the engine that a module does not use, and that somebody who uses the module has in a
// list of modules all the same; or "".
func (r *rehearsal) foreign(m goModule, list string) (engine string) {
	wanted := r.wants(readGoMod(r.origin, m))
	for _, other := range r.modules {
		names := ofEngine[other.dir]
		if names != nil && other != m && wanted[other.path] == "" && names.MatchString(list) {
			return other.dir
		}
	}
	return ""
}

// installCommands installs the programs of a module that are meant for users, and has
// them print their help.
func (r *rehearsal) installCommands(commands []string) {
	for _, name := range commands {
		log.Print("go install ", name, "@", r.version)
		r.asStranger(r.scratch, "go", "install", name+"@"+r.version)
		get(run(r.scratch, nil, filepath.Join(r.bin(), path.Base(name)), "-h"))
	}
}

// A consumer is somebody else's module.
type consumer struct {
	r   *rehearsal
	dir string
}

func (r *rehearsal) newConsumer(name string) *consumer {
	c := &consumer{r: r, dir: filepath.Join(r.scratch, filepath.FromSlash(name), "consumer")}
	must(os.MkdirAll(c.dir, 0o700))
	c.run("go", "mod", "init", "example.org/consumer")
	return c
}

func (c *consumer) run(name string, args ...string) {
	c.r.asStranger(c.dir, name, args...)
}

// follow runs the commands that instructions have.
func (c *consumer) follow(instructions string) {
	if script := commands(instructions); script != "" {
		c.run("sh", "-ec", script)
	}
}

// inside matches the packages of a published module that are not for users.
var inside = regexp.MustCompile("/(internal|testservers)(/|$)")

// forOthers returns the packages of a module that others may import, and its programs.
func (r *rehearsal) forOthers(m goModule) (packages, commands []string) {
	list := r.asStranger(filepath.Join(r.origin, m.dir), "go", "list", "-f", `{{if .GoFiles}}{{.ImportPath}} {{.Name}}{{end}}`, "./...")
	for line := range strings.Lines(list) {
		name, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case name == "" || inside.MatchString(name):
		case kind == "main":
			commands = append(commands, name)
		default:
			packages = append(packages, name)
		}
	}
	ensure(len(packages)+len(commands) > 0, "it has no package to import, and no program")
	return packages, commands
}

// importAll builds and runs a program that imports packages.
func (c *consumer) importAll(packages []string) {
	var b strings.Builder
	b.WriteString("package main\n\nimport (\n")
	for _, name := range packages {
		fmt.Fprintf(&b, "\t_ %q\n", name)
	}
	b.WriteString(")\n\nfunc main() {}\n")
	c.runProgram(b.String())
}

// runProgram has the go command fetch what a program needs beside what is there, and runs
// it. Nothing is run without a program.
func (c *consumer) runProgram(source string) {
	if source == "" {
		return
	}
	must(os.WriteFile(filepath.Join(c.dir, "main.go"), []byte(source), 0o600))
	c.run("go", "mod", "tidy")
	c.run("go", "vet", ".")
	c.run("go", "run", ".")
}
