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

// Each promise of a README has a row in PROMISES.md, and what a row names exists: a test, a
// rule of enginetest, or a target of the Makefile.
func TestPromisesHaveTests(t *testing.T) {
	table := read(t, "checks/PROMISES.md")
	rows := map[string]string{}
	for _, r := range row.FindAllStringSubmatch(table, -1) {
		rows[r[1]] = r[2]
	}
	n := 0
	for readme, heading := range map[string]string{"README.md": "## Promises\n", "durable/README.md": "## What it promises\n"} {
		_, text, found := strings.Cut(read(t, readme), heading)
		require.True(t, found, "%s has no %q", readme, heading)
		text, _, _ = strings.Cut(text, "\n## ")
		for _, p := range promised.FindAllStringSubmatch(text, -1) {
			n++
			require.NotEmpty(t, rows[p[1]], "checks/PROMISES.md has no row for %q of %s", p[1], readme)
		}
	}
	require.GreaterOrEqual(t, n, 17, "promises are found")
	for promise, tests := range rows {
		if promise == "---" || tests == "fails without it" {
			continue
		}
		found := named.FindAllStringSubmatch(tests, -1)
		require.NotEmpty(t, found, promise)
		for _, name := range found {
			require.True(t, exists(t, name[1]), "%s: there is no %s", promise, name[1])
		}
	}
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
