package docs

import (
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exempt are packages that need no Example, with the reason.
var exempt = map[string]string{
	".":                "it has no code",
	"timingwheel/park": "only package purgatory can call it",
}

// Each package that users import has an Example, and begins with a sentence that says what
// the package does.
func TestPackagesHaveExamples(t *testing.T) {
	packages := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		switch {
		case err != nil || !d.IsDir():
			return err
		case d.Name() == ".git" || unpublished.MatchString(rel+"/"):
			return filepath.SkipDir
		}
		name, synopsis, examples := describe(t, path)
		if name == "" || name == "main" {
			return nil
		}
		packages++
		for _, fault := range lacks(name, synopsis, examples, exempt[rel]) {
			t.Errorf("%s: %s", rel, fault)
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, packages, 20, "they are found")
}

func TestLacks(t *testing.T) {
	require.Empty(t, lacks("cron", "Package cron reads the text of a schedule.", 1, ""))
	require.Len(t, lacks("cron", "Package cron reads the text of a schedule.", 0, ""), 1)
	require.Len(t, lacks("cron", "Cron expressions.", 1, ""), 1)
}

// lacks returns what a package's documentation has not.
func lacks(name, synopsis string, examples int, reason string) (faults []string) {
	if !regexp.MustCompile(`^Package ` + name + ` [a-z]+s `).MatchString(synopsis) {
		faults = append(faults, "its first sentence does not say what it does: "+synopsis)
	}
	if examples == 0 && reason == "" {
		faults = append(faults, "it has no Example")
	}
	return faults
}

// describe returns the name of a folder's package, its first sentence, and how many Examples it has.
func describe(t *testing.T, dir string) (name, synopsis string, examples int) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(t, err)
		switch {
		case strings.HasSuffix(file, "_test.go"):
			examples += len(doc.Examples(f))
		case f.Doc != nil:
			name, synopsis = f.Name.Name, new(doc.Package).Synopsis(f.Doc.Text())
		case name == "":
			name = f.Name.Name
		}
	}
	return name, synopsis, examples
}
