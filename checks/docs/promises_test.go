package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	promised = regexp.MustCompile(`(?m)^(?:-|\d\.) \*\*(.+?)[.,]?\*\*`)
	named    = regexp.MustCompile("`([^`\n]+)`")
	row      = regexp.MustCompile(`(?m)^\| (.+?) \| (.+) \|$`)
)

// Each promise of a README has a row in its chapter of PROMISES.md, and each name in that file
// exists: a test, a rule of enginetest, or a target of the Makefile.
func TestPromisesHaveTests(t *testing.T) {
	table := read(t, "checks/PROMISES.md")
	n := 0
	for _, of := range []struct{ readme, heading, chapter string }{
		{"README.md", "## Promises\n", "## The wheel\n"},
		{"durable/README.md", "## What it promises\n", "## Durable jobs\n"},
	} {
		rows := map[string]bool{} // of this chapter: others have promises of the same name
		for _, r := range row.FindAllStringSubmatch(below(t, table, of.chapter), -1) {
			rows[r[1]] = true
		}
		for _, p := range promised.FindAllStringSubmatch(below(t, read(t, of.readme), of.heading), -1) {
			n++
			require.True(t, rows[p[1]], "checks/PROMISES.md has no row for %q of %s", p[1], of.readme)
		}
	}
	require.GreaterOrEqual(t, n, 17, "promises are found")
	for _, r := range row.FindAllStringSubmatch(table, -1) {
		if r[1] == "---" || r[2] == "fails without it" {
			continue
		}
		found := named.FindAllStringSubmatch(r[2], -1)
		require.NotEmpty(t, found, r[1])
		for _, name := range found {
			require.True(t, exists(t, name[1]), "%s: there is no %s", r[1], name[1])
		}
	}
	for _, name := range named.FindAllStringSubmatch(table, -1) { // those of the text, too
		if strings.Contains(name[1], ".Test") {
			require.True(t, exists(t, name[1]), "there is no %s", name[1])
		}
	}
}

// below returns the text between a heading and the next one.
func below(t *testing.T, text, heading string) string {
	_, text, found := strings.Cut(text, heading)
	require.True(t, found, "there is no %q", heading)
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

func exists(t *testing.T, name string) bool {
	if target, ok := strings.CutPrefix(name, "make "); ok {
		return regexp.MustCompile(`(?m)^[a-z -]*\b` + regexp.QuoteMeta(target) + `\b[a-z -]*:`).MatchString(read(t, "Makefile"))
	}
	dot := strings.LastIndex(name, ".")
	require.Positive(t, dot, name)
	files, declaration := "*.go", `{"`+name[dot+1:]+`",` // a rule
	if strings.HasPrefix(name[dot+1:], "Test") {
		files, declaration = "*_test.go", "\nfunc "+name[dot+1:]+"(t *testing.T)"
	}
	paths, err := filepath.Glob(filepath.Join(root, name[:dot], files))
	require.NoError(t, err)
	for _, path := range paths {
		rel, err := filepath.Rel(root, path)
		require.NoError(t, err)
		if strings.Contains(read(t, rel), declaration) {
			return true
		}
	}
	return false
}
