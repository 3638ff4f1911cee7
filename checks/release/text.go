package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The part of a README about installing is between these two.
const (
	installBegin = "<!-- install: checks/release writes this -->\n"
	installEnd   = "<!-- end of install -->\n"
)

// checkoutPath is what a README says where a checkout is.
const checkoutPath = "/path/to/checkout"

// fromCheckout is what a README says before a module is published.
func (r *rehearsal) fromCheckout(m goModule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Until %s is published, use a checkout. In the folder of your module (`go mod init example.com/hello` makes one):\n\n", r.version)
	needed := map[string]bool{}
	for _, got := range r.toGet(m) {
		needed[got.path] = true
		for other := range r.wants(readGoMod(r.root, got)) {
			needed[other] = true
		}
	}
	for _, other := range r.modules {
		if needed[other.path] {
			fmt.Fprintf(&b, "    go mod edit -replace %s=%s\n", other.path, filepath.ToSlash(filepath.Join(checkoutPath, other.dir)))
		}
	}
	return b.String() + r.fromProxy(m)
}

// fromProxy is what it says from then on.
func (r *rehearsal) fromProxy(m goModule) string {
	var b strings.Builder
	for _, got := range r.toGet(m) {
		fmt.Fprintf(&b, "    go get %s@%s\n", got.path, r.version)
	}
	return b.String() + "\nSave the program below as `main.go` there, and run `go mod tidy`, then `go run .`.\n"
}

// toGet returns the modules that a README says to get: its own, and each other one that has a package
// that the README's first program imports.
func (r *rehearsal) toGet(m goModule) []goModule {
	modules := []goModule{m}
	program := get(parser.ParseFile(token.NewFileSet(), "main.go", firstProgram(r.readme(m)), parser.ImportsOnly))
	for _, spec := range program.Imports {
		imported := get(strconv.Unquote(spec.Path.Value))
		if r.ours(imported) && !slices.Contains(modules, r.moduleOf(imported)) {
			modules = append(modules, r.moduleOf(imported))
		}
	}
	return modules
}

// install splits a README. The middle part is what it says about installing. A README
// without it has none.
func install(readme string) (before, install, after string) {
	before, rest, found := strings.Cut(readme, installBegin)
	install, after, ended := strings.Cut(rest, installEnd)
	if !found || !ended {
		return readme, "", ""
	}
	return before + installBegin, install, installEnd + after
}

// installPublished has the README of a module in the origin say how to install it.
func (r *rehearsal) installPublished(m goModule) {
	before, old, after := install(r.readme(m))
	if old != "" {
		must(os.WriteFile(filepath.Join(r.origin, m.dir, "README.md"), []byte(before+r.fromProxy(m)+after), 0o600))
	}
}

// commands returns the lines of Markdown that are indented, as a script.
func commands(markdown string) string {
	var b strings.Builder
	for line := range strings.Lines(markdown) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			b.WriteString(command)
		}
	}
	return b.String()
}

// firstProgram returns the first Go block of Markdown that is a program, or "".
func firstProgram(markdown string) string {
	for {
		_, rest, found := strings.Cut(markdown, "\n```go\n")
		if !found {
			return ""
		}
		block, after, _ := strings.Cut(rest, "\n```\n")
		if strings.HasPrefix(block, "package main\n") {
			return block + "\n"
		}
		markdown = "\n" + after
	}
}

const unreleased = "## Unreleased\n"

// headChangelog puts the heading of the version above what is unreleased. A changelog
// that has the heading is as it should be.
func (r *rehearsal) headChangelog(text string) string {
	heading := "## " + r.version
	if strings.Contains(text, "\n"+heading+" ") {
		return text
	}
	before, after, found := strings.Cut(text, unreleased)
	ensure(found, "there is no line %s", strings.TrimSpace(unreleased))
	next := strings.TrimSpace(after)
	ensure(next != "" && !strings.HasPrefix(next, "## "), "nothing is unreleased")
	return before + unreleased + "\n" + heading + " - " + time.Now().UTC().Format(time.DateOnly) + "\n" + after
}
