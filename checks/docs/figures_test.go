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
	blocks   = regexp.MustCompile(`\n\s*(?:<!--.*-->\s*)?(?:\n|\||[-*]\s|\d+\.\s)`) // paragraphs, items and rows
	clauses  = regexp.MustCompile(`[.;]\s|\|`)
)

// TestFigures finds stale figures. A link to a section of a RESULTS.md says where the numbers
// of its sentence or cell are from: a row or a paragraph there has all of them, perhaps with
// more digits. So has one for each row of a table below a sentence that ends with a colon.
func TestFigures(t *testing.T) {
	figures := 0
	for rel := range files(t) {
		if !strings.HasSuffix(rel, ".md") {
			continue
		}
		var above []string // of the sentence with the colon
		for _, block := range blocks.Split(noProse.ReplaceAllString(read(t, rel), ""), -1) {
			isRow := strings.HasSuffix(block, "|")
			if !isRow && block != "" {
				above = nil
			}
			if above != nil {
				block = strings.ReplaceAll(block, "|", " ")
			}
			for _, clause := range clauses.Split(block, -1) {
				measured := slices.Concat(above, linked(t, rel, clause))
				if !isRow && strings.HasSuffix(clause, ":") {
					above = measured
				}
				found := number.FindAllString(noFigure.ReplaceAllString(clause, " "), -1)
				if measured == nil || found == nil {
					continue
				}
				figures += len(found)
				if !slices.ContainsFunc(measured, func(text string) bool { return stand(found, text) }) {
					t.Errorf("%s: no row there has all of %q: %s", rel, found, strings.Join(strings.Fields(clause), " "))
				}
			}
		}
	}
	require.Greater(t, figures, 60, "they are found")
}

// linked returns the rows and paragraphs of the sections that a clause links to.
func linked(t *testing.T, rel, clause string) (texts []string) {
	for _, to := range results.FindAllStringSubmatch(clause, -1) {
		section := part(read(t, filepath.Join(filepath.Dir(rel), to[1])), to[2])
		texts = append(texts, blocks.Split(section, -1)...)
	}
	return texts
}

// A figure is the rounded one of a number that has more digits.
func TestFiguresAreRounded(t *testing.T) {
	const text = "0.28 ms, 72.6 B, 396,401 of 1815 and 548; 9.7 ±0.7 (30603)"
	require.True(t, stand([]string{"0.3", "73", "396,000", "550", "1,815", "10"}, text))
	for _, stale := range []string{"0.2", "0.4", "72", "397,000", "540", "30,000", "9", "2"} {
		require.False(t, stand([]string{"73", stale}, text), stale)
	}
	require.Equal(t, "The one\n7\n### Two\n6", part("# A\n8\n## The one\n7\n### Two\n6\n## Three\n5", "the-one"))
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

// stand reports whether a text has all of the figures, or numbers that they are rounded from.
func stand(figures []string, text string) bool {
	numbers := number.FindAllString(text, -1)
	return !slices.ContainsFunc(figures, func(figure string) bool {
		return !slices.ContainsFunc(numbers, func(n string) bool { return math.Abs(value(n)-value(figure)) <= 0.501*step(figure) })
	})
}

func value(number string) float64 {
	v, _ := strconv.ParseFloat(strings.ReplaceAll(number, ",", ""), 64)
	return v
}

// step returns what the last digit of a figure counts. Zeros at the end of a whole number are no
// digits if two others are before them: 160, not 100.
func step(figure string) float64 {
	whole, decimals, _ := strings.Cut(strings.ReplaceAll(figure, ",", ""), ".")
	if digits := strings.TrimRight(whole, "0"); decimals == "" && len(digits) > 1 {
		return math.Pow10(len(whole) - len(digits))
	}
	return math.Pow10(-len(decimals))
}
