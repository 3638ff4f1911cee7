package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	link    = regexp.MustCompile(`\]\(([^()\s]*)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	code    = regexp.MustCompile("(?ms)^```.*?^```|^    .*?$|`[^`\n]*`")
)

// Each link of a Markdown file leads to a file of the repository, and to a heading if it
// names one. What stands on other people's servers is not asked for.
func TestLinksLeadSomewhere(t *testing.T) {
	list, err := exec.Command("git", "-C", root, "ls-files", "*.md").Output()
	if err != nil {
		t.Skip("no git: ", err)
	}
	links := 0
	for name := range strings.FieldsSeq(string(list)) {
		text := read(t, name)
		for _, found := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			to, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			links++
			target := name
			if to != "" {
				target = filepath.Join(filepath.Dir(name), to)
				_, err := os.Stat(filepath.Join(root, target))
				if err != nil {
					t.Errorf("%s: (%s) leads nowhere", name, found[1])
					continue
				}
			}
			if anchor != "" && strings.HasSuffix(target, ".md") && !hasAnchor(read(t, target), anchor) {
				t.Errorf("%s: (%s) names a heading that is not there", name, found[1])
			}
		}
	}
	require.Greater(t, links, 50, "they are found")
}

func read(t *testing.T, name string) string {
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

var noAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// hasAnchor makes anchors of the headings as code hosts do.
func hasAnchor(text, anchor string) bool {
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		plain := noAnchor.ReplaceAllString(strings.ToLower(link.ReplaceAllString(h[1], "")), "")
		if strings.ReplaceAll(strings.TrimSpace(plain), " ", "-") == anchor {
			return true
		}
	}
	return false
}
