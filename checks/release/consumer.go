package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// maxZip is how large the zip of a module may be, in bytes. Pictures, and
// programs that only developers run, are in modules that are not published.
const maxZip = 600_000

// inspect looks at a module that was published: its zip, and its tests in a checkout of
// its tag, with the dependencies that it asks for and no newer ones.
func (r *rehearsal) inspect(m goModule) error {
	zipped, err := r.zip(m, m.tag(r.version))
	if err != nil {
		return err
	}
	served, err := r.served(m)
	if err != nil {
		return err
	}
	if !bytes.Equal(zipped, served) {
		return errors.New("the zip of the tag is not the one that others have the sum of")
	}
	if len(zipped) > maxZip {
		return fmt.Errorf("its zip has %d bytes, and %d are the most", len(zipped), maxZip)
	}
	files, err := zip.NewReader(bytes.NewReader(zipped), int64(len(zipped)))
	if err != nil {
		return err
	}
	license := m.path + "@" + r.version + "/LICENSE"
	if !slices.ContainsFunc(files.File, func(f *zip.File) bool { return f.Name == license }) {
		return errors.New("its zip has no LICENSE")
	}
	file, err := readGoMod(r.origin, m)
	if err != nil {
		return err
	}
	if len(file.Replace) > 0 {
		return errors.New("its go.mod has a replace, with which go install refuses it")
	}
	log.Printf("the zip of %s has %d KB in %d files; %d KB are the most", m.tag(r.version), len(zipped)/1000, len(files.File), maxZip/1000)
	_, err = r.asStranger(filepath.Join(r.origin, m.dir), "go", "vet", "./...")
	return err
}

func (r *rehearsal) served(m goModule) ([]byte, error) {
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(r.proxy, escaped, "@v", r.version+".zip"))
}

// useCheckout does what the READMEs say about modules that are not published.
func (r *rehearsal) useCheckout() error {
	for _, m := range r.published() {
		text, err := os.ReadFile(filepath.Join(r.origin, m.dir, "README.md"))
		_, instructions, _ := install(string(text))
		if os.IsNotExist(err) || !strings.Contains(instructions, checkoutPath) {
			continue
		} else if err != nil {
			return err
		}
		log.Print("from a checkout: ", m.path)
		c, err := r.newConsumer("checkout/" + m.path)
		if err != nil {
			return err
		}
		if err := c.follow(strings.ReplaceAll(instructions, checkoutPath, r.origin)); err != nil {
			return err
		}
		if err := c.runProgram(firstProgram(string(text))); err != nil {
			return err
		}
	}
	return nil
}

// use does what somebody does who needs a published module.
func (r *rehearsal) use(m goModule) error {
	log.Print("from the proxy: ", m.path)
	c, err := r.newConsumer(m.path)
	if err != nil {
		return err
	}
	if _, err := c.run("go", "get", m.path+"@"+r.version); err != nil {
		return err
	}
	packages, commands, err := r.forOthers(m)
	if err != nil {
		return err
	}
	if err := c.importAll(packages); err != nil {
		return err
	}
	if _, err := c.run("go", "mod", "verify"); err != nil {
		return err
	}
	if err := r.installCommands(commands); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(r.origin, m.dir, "README.md"))
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	if c, err = r.newConsumer("readme/" + m.path); err != nil {
		return err
	}
	_, instructions, _ := install(string(text))
	if err := c.follow(instructions); err != nil {
		return err
	}
	return c.runProgram(firstProgram(string(text)))
}

// installCommands installs the programs of a module that are meant for users, and has
// them print their help.
func (r *rehearsal) installCommands(commands []string) error {
	for _, name := range commands {
		log.Print("go install ", name, "@", r.version)
		if _, err := r.asStranger(r.scratch, "go", "install", name+"@"+r.version); err != nil {
			return err
		}
		if _, err := run(r.scratch, nil, filepath.Join(r.bin(), path.Base(name)), "-h"); err != nil {
			return err
		}
	}
	return nil
}

// A consumer is somebody else's module.
type consumer struct {
	r   *rehearsal
	dir string
}

func (r *rehearsal) newConsumer(name string) (*consumer, error) {
	c := &consumer{r: r, dir: filepath.Join(r.scratch, filepath.FromSlash(name), "consumer")}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, err
	}
	_, err := c.run("go", "mod", "init", "example.org/consumer")
	return c, err
}

func (c *consumer) run(name string, args ...string) (string, error) {
	return c.r.asStranger(c.dir, name, args...)
}

// follow runs the commands that instructions have.
func (c *consumer) follow(instructions string) error {
	if script := commands(instructions); script != "" {
		_, err := c.run("sh", "-ec", script)
		return err
	}
	return nil
}

// forOthers returns the packages of a module that others may import, and its programs.
func (r *rehearsal) forOthers(m goModule) (packages, commands []string, err error) {
	list, err := r.asStranger(filepath.Join(r.origin, m.dir), "go", "list", "-f", `{{if .GoFiles}}{{.ImportPath}} {{.Name}}{{end}}`, "./...")
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(list) {
		name, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case name == "" || slices.Contains(strings.Split(name, "/"), "internal"):
		case kind == "main":
			commands = append(commands, name)
		default:
			packages = append(packages, name)
		}
	}
	if len(packages)+len(commands) == 0 {
		return nil, nil, errors.New("it has no package to import, and no program")
	}
	return packages, commands, nil
}

// importAll builds and runs a program that imports packages.
func (c *consumer) importAll(packages []string) error {
	var b strings.Builder
	b.WriteString("package main\n\nimport (\n")
	for _, name := range packages {
		fmt.Fprintf(&b, "\t_ %q\n", name)
	}
	b.WriteString(")\n\nfunc main() {}\n")
	return c.runProgram(b.String())
}

// runProgram has the go command fetch what a program needs beside what is there, and runs
// it. Nothing is run without a program.
func (c *consumer) runProgram(source string) error {
	if source == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(c.dir, "main.go"), []byte(source), 0o600); err != nil {
		return err
	}
	if _, err := c.run("go", "mod", "tidy"); err != nil {
		return err
	}
	if _, err := c.run("go", "vet", "."); err != nil {
		return err
	}
	_, err := c.run("go", "run", ".")
	return err
}
