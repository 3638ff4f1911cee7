package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// output is what package testing writes with -test.v=test2json. A test may write what looks
// like a verdict, and may leave its line unfinished.
const output = "" +
	"\x16=== RUN   TestGood\n" +
	"--- FAIL: TestOfAProcessThatItStarts (0.00s)\n" +
	"no newline at the end\x16--- PASS: TestGood (0.01s)\n" +
	"\x16=== RUN   TestParent\n" +
	"\x16=== RUN   TestParent/one\n" +
	"\x16--- PASS: TestParent/one (0.00s)\n" +
	"\x16=== RUN   TestParent/two_three\n" +
	"\x16--- FAIL: TestParent/two_three (0.00s)\n" +
	"\x16--- FAIL: TestParent (0.00s)\n" +
	"\x16=== RUN   TestLong\n" +
	"\x16--- SKIP: TestLong (0.00s)\n" +
	"FAIL\n"

func TestVerdictsAreRead(t *testing.T) {
	s := side{failed: map[test]bool{}}
	require.Equal(t, test{3, "TestLong"}, s.read(3, output))
	require.Equal(t, 2, s.passed)
	require.Equal(t, map[test]bool{{3, "TestParent"}: true, {3, "TestParent/two_three"}: true}, s.failed)
}

// A test counts as ours if a fair coin would seldom part the failures so.
func TestOurs(t *testing.T) {
	for _, failed := range [][2]int{{0, 10}, {0, 5}, {1, 8}} {
		require.True(t, isOurs(failed), failed)
	}
	for _, failed := range [][2]int{{0, 0}, {0, 4}, {8, 11}, {5, 9}, {10, 0}, {10, 10}} {
		require.False(t, isOurs(failed), failed)
	}
	known := trial{program: program{Differs: "^TestA$"}, alone: map[test]*[2]int{{0, "TestA"}: {0, 10}}}
	require.False(t, known.differs())
	known.alone[test{0, "TestB"}] = &[2]int{0, 10}
	require.True(t, known.differs())
	known.Differs = ""
	require.True(t, known.differs())
}

func TestImportsAreChanged(t *testing.T) {
	const before = `// Package p imports "time".
package p

import "context"
import (
	"runtime/trace"
	clock "time" // "time"
	. "time"

	"time/else"
)

func f(s string) string {
	switch s {
	case "context":
		return "time"
	}
	return s +
		"time"
}
`
	after := strings.NewReplacer(`import "context"`, `import "`+core+`/dropin/context"`, `clock "time"`,
		`clock "`+core+`/dropin/time"`, `. "time"`, `. "`+core+`/dropin/time"`).Replace(before)
	var changed trial
	require.Equal(t, after, string(changed.changed([]byte(before))))
	require.Equal(t, 3, changed.lines)
}

func TestPrograms(t *testing.T) {
	for _, p := range programs() {
		require.NotEmpty(t, p.Module)
		require.NotEmpty(t, p.Packages, p.Module)
		require.Regexp(t, "^v", p.Version, p.Module)
		require.Equal(t, p.Only+p.Without == "", p.Because == "", p.Module)
		for _, expression := range []string{p.Only, p.Without, p.Differs} {
			_, err := regexp.Compile(expression)
			require.NoError(t, err, p.Module)
		}
	}
}

func TestReport(t *testing.T) {
	std := side{passed: 4, failed: map[test]bool{}, elapsed: 2 * time.Second, cpu: time.Second}
	wheel := side{passed: 3, failed: map[test]bool{{0, "TestB"}: true}, elapsed: 3 * time.Second, cpu: 1500 * time.Millisecond}
	var out strings.Builder
	report(&out, []*trial{{
		program: program{Module: "github.com/someone/p", Version: "v1.2.3", Packages: []string{".", "./q"}, Only: "A|B", Without: "C",
			Because: "C needs a network.", Found: "TestB counts ticks."},
		sides: [2]side{std, wheel}, lines: 7, alone: map[test]*[2]int{{0, "TestB"}: {1, 10}},
	}, {
		program: program{Module: "example.org/q", Version: "v0.1.0", Packages: []string{"."}}, lines: 2, reason: "3 lines do not compile",
	}}, 10)
	require.Equal(t, `| module | version | import lines | package time: passed, failed | the wheel: passed, failed | elapsed, s | CPU, s |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
| someone/p | v1.2.3 | 7 | 4, 0 | 3, 1 | 2.0, 3.0 | 1.0, 1.5 |
| example.org/q | v0.1.0 | 2 | 3 lines do not compile | | | |

- **github.com/someone/p** (`+"`. ./q`"+`). C needs a network. TestB counts ticks.
  - `+"`TestB`"+` failed, and alone 1 times of 10 with package time, 10 on the wheel

- **example.org/q** (`+"`.`"+`). 
`, out.String())
}
