package main

import (
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// apidiff compares the exported API of two versions of a module.
const apidiff = "golang.org/x/exp/cmd/apidiff@v0.0.0-20261113113407-e3970619a1a4"

// compareAPI compares the API of each published module with that of the last release. It fails if
// CHANGELOG.md does not name what an incompatible change has changed.
func (r *rehearsal) compareAPI() {
	last, err := run(r.root, nil, "git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^") // which may have the tag of this one
	if err != nil {
		log.Print("there is no release whose API could be compared")
		return
	}
	last = strings.TrimSpace(last)
	before := filepath.Join(r.scratch, "last")
	get(run(r.root, nil, "git", "clone", "-q", "--branch", last, r.root, before))
	sinceRelease, _, _ := strings.Cut(read(filepath.Join(r.root, "CHANGELOG.md")), "\n## "+last+" ")
	var unnamed []string
	for _, m := range r.published() {
		if _, err := os.Stat(filepath.Join(before, m.dir, "go.mod")); err != nil {
			continue // it is new
		}
		export := filepath.Join(r.scratch, strings.ReplaceAll(m.path, "/", "_"))
		get(run(filepath.Join(before, m.dir), nil, "go", "run", apidiff, "-m", "-w", export, m.path))
		changes := get(run(filepath.Join(r.root, m.dir), nil, "go", "run", apidiff, "-m", "-incompatible", export, m.path))
		log.Printf("%s has %d incompatible changes since %s", m.path, strings.Count("\n"+changes, "\n- "), last)
		unnamed = append(unnamed, unnamedIn(sinceRelease, changes)...)
	}
	ensure(len(unnamed) == 0, "CHANGELOG.md does not name what these incompatible changes since %s have changed:\n%s", last, strings.Join(unnamed, "\n"))
}

// changed finds the name in a line such as "- ./timingwheel.(*TimingWheel).Len: removed".
var changed = regexp.MustCompile(`^- (?:.*[./(*])?(\w+)\)?: `)

// unnamedIn returns the lines of apidiff's output whose name is not in a text.
func unnamedIn(text, changes string) (lines []string) {
	for line := range strings.SplitSeq(changes, "\n") {
		name := changed.FindStringSubmatch(line)
		if name != nil && !regexp.MustCompile(`\b`+name[1]+`\b`).MatchString(text) {
			lines = append(lines, line)
		}
	}
	return lines
}
