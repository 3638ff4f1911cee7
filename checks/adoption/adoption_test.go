package main

import (
	"os"
	"path/filepath"
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
	"\x16--- SKIP: TestLong (0.00s)\n" +
	"FAIL\n"

func names(of map[string]bool) (all []string) {
	for name := range of {
		all = append(all, name)
	}
	return all
}

func TestVerdictsAreRead(t *testing.T) {
	r := newRun()
	r.read("pkg", output, true)
	require.ElementsMatch(t, []string{"pkg.TestGood", "pkg.TestParent/one"}, names(r.passed))
	require.ElementsMatch(t, []string{"pkg.TestParent", "pkg.TestParent/two_three"}, names(r.failed))
	require.ElementsMatch(t, []string{"pkg.TestLong"}, names(r.skipped))
}

// A process can end without a word of a test, and after a test of an earlier package has
// failed.
func TestEndsOfAProcessAreRead(t *testing.T) {
	for _, c := range []struct{ out, says string }{
		{"\x16--- PASS: TestGood (0.01s)\nexit status 2\n", ""},
		{"\x16=== RUN   TestBad\n\x16panic: send on closed channel\n\ngoroutine 7\n", "panic: send on closed channel"},
		{"fatal error: all goroutines are asleep - deadlock!\n", "fatal error: all goroutines are asleep - deadlock!"},
	} {
		r := newRun()
		r.failed["earlier.TestBad"] = true
		r.read("pkg", c.out, true)
		require.Contains(t, r.failed, "pkg ended: "+c.says)
		require.Len(t, r.failed, 2)
	}
	r := newRun()
	r.read("pkg", "panic: of a process that the test starts\n\x16--- PASS: TestGood (0.01s)\nPASS\n", false)
	require.Empty(t, r.failed)
}

func TestImportsAreChanged(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	const before = `// Package p imports "time".
package p

import (
	"context"
	"runtime/trace"
	clock "time" // "time"
)

var _, _, _ = context.Background, trace.Start, clock.Now

const name = "time"
`
	both := write("p.go", before)
	one := write("sub/one_test.go", "package sub\n\nimport \"time\"\n")
	none := write("none.go", "package p\n\nimport \"strings\"\n")
	data := write("testdata/data.go", "package data\n\nimport \"time\"\n")
	other := write("p.txt", `import "time"`)
	unchanged := map[string]string{}
	for _, path := range []string{none, data, other} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		unchanged[path] = string(text)
	}

	changed, err := changeImports(dir)
	require.NoError(t, err)
	require.Equal(t, map[string]int{both: 2, one: 1}, changed)
	text, err := os.ReadFile(both)
	require.NoError(t, err)
	after := strings.Replace(before, "\t\"context\"", "\t\""+core+"/dropin/context\"", 1)
	after = strings.Replace(after, `clock "time"`, `clock "`+core+`/dropin/time"`, 1)
	require.Equal(t, after, string(text))
	for path, before := range unchanged {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, before, string(text), path)
	}

	list := both + "\n" + none + "\n\n" + both + "\n/somewhere/else.go\n" // as two tests are built
	require.Equal(t, 2, linesIn(list, changed))
}

func TestBinariesOfPackages(t *testing.T) {
	for path, name := range map[string]string{
		"github.com/hashicorp/yamux":            "yamux",
		"github.com/pion/turn/v4":               "turn",
		"github.com/pion/turn/v4/internal/ipv6": "ipv6",
	} {
		require.Equal(t, name, testName(path))
	}
}

func TestTable(t *testing.T) {
	of := func(passed, failed, skipped string, elapsed, cpu time.Duration) run {
		r := newRun()
		r.elapsed, r.cpu = elapsed, cpu
		for set, tests := range map[*map[string]bool]string{&r.passed: passed, &r.failed: failed, &r.skipped: skipped} {
			for _, test := range strings.Fields(tests) {
				(*set)[test] = true
			}
		}
		return r
	}
	ended := of("p.A", "p.B", "p.S", 4*time.Second, time.Second)
	ended.failed["p ended: panic: x"] = true
	rows := []row{{
		module:  module{path: "github.com/someone/p", version: "v1.2.3", tests: "A|B", skip: "C", because: "it needs a network"},
		imports: 9, built: 7,
		std:   []run{of("p.A p.B p.B/sub p.S", "", "", 2*time.Second, time.Second), of("p.A p.B/sub", "p.B", "p.S", 3*time.Second, 3*time.Second)},
		wheel: []run{ended, of("p.A p.New", "p.B", "p.S", 5*time.Second, 5*time.Second)},
	}, {
		module: module{path: "example.org/q", version: "v0.1.0"}, compileErrors: 2, reason: "wheel does not build",
	}}
	var out strings.Builder
	printTable(&out, rows)
	require.Equal(t, `| module | version | import lines | compile errors | package time: passed, failed | the wheel: passed, failed | elapsed, s | CPU, s |
| --- | --- | ---: | ---: | --- | --- | ---: | ---: |
| someone/p | v1.2.3 | 7 of 9 | 0 | 4, 0; 2, 1 | 1, 2; 2, 1 | 3.0, 5.0 | 3.0, 5.0 |
| example.org/q | v0.1.0 | | 2 | wheel does not build | | | |

- github.com/someone/p, only `+"`A|B`"+`

- github.com/someone/p, without `+"`C`"+`: it needs a network

- github.com/someone/p, `+"`p ended: panic: x`"+`: failed in 0 of 2 rounds with package time, in 1 of 2 with the wheel, **only with the wheel**
- github.com/someone/p, `+"`p.B`"+`: failed in 1 of 2 rounds with package time, in 2 of 2 with the wheel

- github.com/someone/p: 1 ran with package time only: `+"`p.B/sub`"+`

- github.com/someone/p: 1 ran with the wheel only: `+"`p.New`"+`
`, out.String())
}
