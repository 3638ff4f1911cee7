package main

import (
	"fmt"
	"io/fs"
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
func workspace(root string) ([]goModule, error) {
	name := filepath.Join(root, "go.work")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork(name, data, nil)
	if err != nil {
		return nil, err
	}
	var modules []goModule
	for _, use := range work.Use {
		m := goModule{dir: path.Clean(use.Path), published: true}
		for _, comment := range use.Syntax.Suffix {
			if comment.Token != "// not published" {
				return nil, fmt.Errorf("go.work says of %s: %q", use.Path, comment.Token)
			}
			m.published = false
		}
		file, err := readGoMod(root, m)
		if err != nil {
			return nil, fmt.Errorf("go.work lists %s: %w", use.Path, err)
		}
		m.path = file.Module.Mod.Path
		modules = append(modules, m)
	}
	return modules, nil
}

func readGoMod(root string, m goModule) (*modfile.File, error) {
	name := filepath.Join(root, m.dir, "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, data, nil)
}

// unlisted returns the folders below root that have a go.mod which go.work does not list.
func unlisted(root string, modules []goModule) (dirs []string, err error) {
	err = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "go.mod" {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(name))
		if !slices.ContainsFunc(modules, func(m goModule) bool { return m.dir == filepath.ToSlash(dir) }) {
			dirs = append(dirs, filepath.ToSlash(dir))
		}
		return err
	})
	return dirs, err
}

// nameInWorkspace has a go.work replace the version that the modules ask of each other.
func (r *rehearsal) nameInWorkspace(text string) (string, error) {
	work, err := modfile.ParseWork("go.work", []byte(text), nil)
	if err != nil {
		return "", err
	}
	for _, replace := range work.Replace {
		if at := slices.Index(replace.Syntax.Token, replace.Old.Version); r.ours(replace.Old.Path) && at > 0 {
			replace.Syntax.Token[at] = r.version
		}
	}
	return string(modfile.Format(work.Syntax)), nil
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

// inOrder returns the published modules, each behind those that it needs.
func (r *rehearsal) inOrder() (ordered []goModule) {
	for waiting := r.published(); len(waiting) > 0; {
		before := len(waiting)
		waiting = slices.DeleteFunc(waiting, func(m goModule) bool {
			for needed := range r.wants(get(readGoMod(r.origin, m))) {
				if !slices.ContainsFunc(ordered, func(o goModule) bool { return o.path == needed }) {
					return false
				}
			}
			ordered = append(ordered, m)
			return true
		})
		if len(waiting) == before {
			must(fmt.Errorf("these need each other, or what is not published: %v", waiting))
		}
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
