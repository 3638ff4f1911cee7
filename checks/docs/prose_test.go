package docs

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

const (
	// begin matches the begin of a sentence, of a list's item and of a table's cell.
	begin = `(?:^|\n[ \t]*\n|[.:;!?)][\s*"]+|\|\s*|\n\s*(?:[-*]|\d+\.)\s+\**)`
	be    = `(?:is|are|was|were|be|been)`
	group = `(?:(?:an?|the|each|every|all|its|their|your|this|that|no)\s+(?:\w+\s+)?[\w.]+|it|them|others|\w+s)`
	verb  = `(?:wait|run|return|call|ask|end|begin|start|do|go|come|fire|keep|take|send|write|read|use|make|give|` +
		`stop|wake|try|claim|fail|tell|say|show|leave|count|hold|drop|work|serve|answer|add|forget|know|see|be|build|compile)`
)

// patterns make a sentence one that must be read twice.
var patterns = map[string]*regexp.Regexp{
	"the subject is not first": regexp.MustCompile(begin + `(?:(?:Of|Behind|Beside|Besides|Among) |` +
		`(?:Only|Never|Nor|Neither|Not)\s[^.,;:|]*\b(?:does|do|is|are|has|have|can|may|must|will)\s+(?:an?|the|it|they|all|each|its)\b|` +
		`(?:In|On|At|Under|From|To|By|For|Beyond|Between|Above|Below|Within|Into)\s[^,.;:|]*\b` +
		`(?:is|are|goes?|comes?|stands?|lies?|belongs?|stays?)\s+(?:an?|the|what|no|all|each|every)\b)`),
	"a clause as a noun": regexp.MustCompile(begin + `(?:What|Who|Whoever|Whatever|Whether)\s[^?.|]*(?:[.|]|$)|` +
		`\b(?:for|by|to|of|from|with|than|beside|but)\s+(?:what|who|whoever|whatever)\b`),
	"a causative": regexp.MustCompile(`\b(?:has|have|had|having)\s+` + group + `\s+(?:not\s+)?` + verb + `\b`),
	"a private word": regexp.MustCompile(`\b(?:an?|the|each|every|no|one|any|its|last|next|first|of)\s+looks?\b|\btold\b|` +
		`\bput(?:s|ting)?\s+off\b|\bdear(?:er|est)?\b|\b[Bb]ut\s+for\b|\b[Cc]omes?\s+with\b|\bin\s+turn\b|\b` + be + `\s+(?:asked|over)\b`),
	"a double negative": regexp.MustCompile(`\bends?\s+nothing\b|\b` + be + `\s+none\b|\bno\s+(?:less|fewer)\s+than\b|` +
		`\bnot\s+(?:without|un\w+ed|no)\b|\bnever\s+not\b|\bno\s+\w+\s+` + be + `\s+not\b`),
}

// unpublished are folders whose comments no user reads.
var unpublished = regexp.MustCompile(`(^|/)(internal|testdata|checks|benchmarks|examples|tests|testservers|trials|setclock)/`)

// TestProse finds the patterns in comments that go doc shows, and in Markdown.
func TestProse(t *testing.T) {
	texts := 0
	for rel := range files(t) {
		switch {
		case strings.HasSuffix(rel, ".md"):
			texts++
			faults(t, rel, 1, sentences(read(t, rel)))
		case !strings.HasSuffix(rel, "_test.go") && !unpublished.MatchString(rel):
			texts++
			fset, f := parse(t, rel)
			ast.FileExports(f)
			for _, c := range docComments(f) {
				line := fset.Position(c.Pos()).Line
				faults(t, rel, line, prose(c.CommentGroup))
				if c.ofField && goesOn(c.Text()) {
					t.Errorf("%s:%d: a field's comment is no sentence: %s", rel, line, c.Text())
				}
			}
		}
	}
	require.Greater(t, texts, 100, "they are found")
}

// The patterns find what they are for, and leave plain sentences alone.
func TestProseFinds(t *testing.T) {
	for text, want := range map[string]string{
		"Of suspects at most a sixteenth run at a time.":    "the subject is not first",
		"In either case the job is a suspect from then on.": "the subject is not first",
		"A job waits. Whoever calls it is told.":            "a clause as a noun",
		"| what | it says | What is canceled keeps it. |":   "a clause as a noun",
		"WithLinger has an Add wait up to d.":               "a causative",
		"It is kept, but for the last one.":                 "a private word",
		"A backlog is none.":                                "a double negative",
	} {
		require.Contains(t, fmt.Sprint(find(text)), want, text)
	}
	require.Empty(t, find("At the limit, Schedule returns an error. What does it cost? The engine has the jobs."))
	require.True(t, goesOn("when it is due"))
	require.False(t, goesOn("durable.WithWorkerName"))
	require.NotContains(t, sentences("# What it is\n\n    Of all\n\n```\nOf it\n```\n`is asked`"), "f")
}

// faults reports each pattern in a text that begins at a line of a file.
func faults(t *testing.T, rel string, line int, text string) {
	for at, fault := range find(text) {
		t.Errorf("%s:%d: %s", rel, line+strings.Count(text[:at], "\n"), fault)
	}
}

// find returns the patterns in a text, by where they begin.
func find(text string) map[int]string {
	found := map[int]string{}
	for name, re := range patterns {
		for _, at := range re.FindAllStringIndex(text, -1) {
			match := strings.TrimLeft(text[at[0]:at[1]], " \n\t.:;!?|-*)")
			found[at[1]-len(match)] = name + ": " + strings.Join(strings.Fields(match), " ")
		}
	}
	return found
}

var (
	noProse = regexp.MustCompile("(?ms)^```.*?^```|^    .*?$|^#+ .*?$")
	inline  = regexp.MustCompile("`[^`]*`|\\]\\([^)\\s]*\\)")
)

// sentences blanks out code, headings and addresses of a Markdown file. Lines stay.
func sentences(text string) string {
	text = noProse.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
	return inline.ReplaceAllStringFunc(text, func(s string) string { return "x" + strings.Repeat("\n", strings.Count(s, "\n")) })
}

// prose returns a comment without its code. Lines stay.
func prose(g *ast.CommentGroup) string {
	var lines []string
	for _, c := range g.List {
		text := strings.TrimPrefix(strings.TrimPrefix(c.Text, "//"), " ")
		if strings.HasPrefix(text, "\t") || strings.HasPrefix(c.Text, "//go:") {
			text = ""
		}
		lines = append(lines, text)
	}
	return strings.Join(lines, "\n")
}

// goesOn reports whether a comment begins in lower case with a word that is no code.
func goesOn(text string) bool {
	word, _, _ := strings.Cut(text, " ")
	code := func(r rune) bool { return unicode.IsUpper(r) || strings.ContainsRune(".(_", r) }
	return word != "" && unicode.IsLower(rune(word[0])) && strings.IndexFunc(strings.TrimSpace(word), code) < 0
}
