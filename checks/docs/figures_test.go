package docs

import (
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	results = regexp.MustCompile(`\]\(([^()\s#]*RESULTS\.md)#([^()\s]*)\)`)
	number  = regexp.MustCompile(`\b\d+(?:,\d{3})*(?:\.\d+)?`)
	// noFigure matches code, addresses, versions and percentiles.
	noFigure = regexp.MustCompile("`[^`]*`|\\]\\([^)\\s]*\\)|\\b\\d+\\.\\d+\\.\\d+|\\b\\d+th\\b")
	pieces   = regexp.MustCompile(`[.;]\s|\n\s*\n|\||\n\s*(?:[-*]|\d+\.)\s`)
	tabled   = regexp.MustCompile(`:\n+(?:<!--.*\n)?(?:\|.*\n)+`)
	onePart  = strings.NewReplacer("|", " ", ";", " ", ". ", " ", "\n", " ")
)

// TestFigures finds stale figures. A link to a section of a RESULTS.md says where the numbers
// of its sentence or table cell are from: each stands there, perhaps with more digits. A
// sentence that ends with a colon has the table below it, too.
func TestFigures(t *testing.T) {
	figures := 0
	for rel := range files(t) {
		if !strings.HasSuffix(rel, ".md") {
			continue
		}
		text := tabled.ReplaceAllStringFunc(noProse.ReplaceAllString(read(t, rel), ""), onePart.Replace)
		for _, piece := range pieces.Split(text, -1) {
			var measured []string
			for _, to := range results.FindAllStringSubmatch(piece, -1) {
				section := part(read(t, filepath.Join(filepath.Dir(rel), to[1])), to[2])
				measured = append(measured, number.FindAllString(section, -1)...)
			}
			if measured == nil {
				continue
			}
			for _, figure := range number.FindAllString(noFigure.ReplaceAllString(piece, " "), -1) {
				figures++
				if !stands(figure, measured) {
					t.Errorf("%s: %s is not where this links to: %s", rel, figure, strings.Join(strings.Fields(piece), " "))
				}
			}
		}
	}
	require.Greater(t, figures, 60, "they are found")
}

// A figure is the rounded one of a number that has more digits.
func TestFiguresAreRounded(t *testing.T) {
	for figure, measured := range map[string]string{"0.3": "0.28", "73": "72.6", "396,000": "396,401", "550": "548", "1,815": "1815", "10": "9.7"} {
		require.True(t, stands(figure, []string{"7", measured}), figure)
	}
	for figure, measured := range map[string]string{"0.3": "0.38", "72": "72.6", "30,000": "30603", "160": "150", "10": "8"} {
		require.False(t, stands(figure, []string{"7", measured}), figure)
	}
	require.Equal(t, []string{"7", "6"}, number.FindAllString(part("# A\n8\n## The one\n7\n### Two\n6\n## Three\n5", "the-one"), -1))
}

// part returns the text below a heading, up to the next one of its kind.
func part(text, anchor string) string {
	for _, section := range strings.Split(text, "\n## ") {
		if hasAnchor("## "+section, anchor) {
			return section
		}
	}
	return ""
}

// stands reports whether one of the numbers is the figure, once it is rounded like that. Zeros
// at the end of a whole number are rounded if two other digits are before them: 160, not 100.
func stands(figure string, numbers []string) bool {
	plain := func(s string) string { return strings.ReplaceAll(s, ",", "") }
	whole, decimals, _ := strings.Cut(plain(figure), ".")
	step := math.Pow10(-len(decimals))
	if digits := strings.TrimRight(whole, "0"); decimals == "" && len(digits) > 1 {
		step = math.Pow10(len(whole) - len(digits))
	}
	want, _ := strconv.ParseFloat(plain(figure), 64)
	return slices.ContainsFunc(numbers, func(n string) bool {
		got, err := strconv.ParseFloat(plain(n), 64)
		return err == nil && math.Abs(got-want) <= step*0.501
	})
}
