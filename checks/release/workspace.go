package main

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// A goModule is one of ours.
type goModule struct {
	dir       string // in the checkout, with slashes; "." for the core
	path      string
	published bool
}

// tag is what the go command looks for in a repository of several modules.
func (m goModule) tag(version string) string { return path.Join(m.dir, version) }

// workspace returns what the go.work in root lists.
func workspace(root string) (modules []goModule) {
	name := filepath.Join(root, "go.work")
	for _, use := range get(modfile.ParseWork(name, get(os.ReadFile(name)), nil)).Use {
		m := goModule{dir: path.Clean(use.Path), published: true}
		for _, comment := range use.Syntax.Suffix {
			ensure(comment.Token == "// not published", "go.work says of %s: %q", use.Path, comment.Token)
			m.published = false
		}
		m.path = readGoMod(root, m).Module.Mod.Path
		modules = append(modules, m)
	}
	return modules
}

func readGoMod(root string, m goModule) *modfile.File {
	name := filepath.Join(root, m.dir, "go.mod")
	return get(modfile.Parse(name, get(os.ReadFile(name)), nil))
}

// nameInWorkspace has a go.work replace the version that the modules ask of each other.
func (r *rehearsal) nameInWorkspace(text string) string {
	work := get(modfile.ParseWork("go.work", []byte(text), nil))
	for _, replace := range work.Replace {
		if at := slices.Index(replace.Syntax.Token, replace.Old.Version); r.ours(replace.Old.Path) && at > 0 {
			replace.Syntax.Token[at] = r.version
		}
	}
	return string(modfile.Format(work.Syntax))
}

// wants returns what a module asks of ours, by the path of the module.
func (r *rehearsal) wants(file *modfile.File) map[string]string {
	ours := map[string]string{}
	for _, require := range file.Require {
		if r.ours(require.Mod.Path) {
			ours[require.Mod.Path] = require.Mod.Version
		}
	}
	return ours
}

// ours reports whether a path, of a module or of a package, is in the repository.
func (r *rehearsal) ours(name string) bool {
	core := r.modules[0].path
	return name == core || strings.HasPrefix(name, core+"/")
}

// moduleOf returns the module that has a package of ours.
func (r *rehearsal) moduleOf(name string) (found goModule) {
	for _, m := range r.modules {
		if (name == m.path || strings.HasPrefix(name, m.path+"/")) && len(m.path) > len(found.path) {
			found = m
		}
	}
	return found
}

// inOrder returns the published modules, each behind those that it needs.
func (r *rehearsal) inOrder() (ordered []goModule) {
	for waiting := r.published(); len(waiting) > 0; {
		before := len(waiting)
		waiting = slices.DeleteFunc(waiting, func(m goModule) bool {
			for needed := range r.wants(readGoMod(r.origin, m)) {
				if !slices.ContainsFunc(ordered, func(o goModule) bool { return o.path == needed }) {
					return false
				}
			}
			ordered = append(ordered, m)
			return true
		})
		ensure(len(waiting) < before, "these need each other, or what is not published: %v", waiting)
	}
	return ordered
}

func (r *rehearsal) published() (modules []goModule) {
	for _, m := range r.modules {
		if m.published {
			modules = append(modules, m)
		}
	}
	return modules
}
