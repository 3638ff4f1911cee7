package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each `make X` that hosted CI, .ci/run and the documents name is a target, and hosted CI
// does nothing else: so all that it does can be done on any machine.
func TestNamedTargetsExist(t *testing.T) {
	makefile := read(filepath.Join(root, "Makefile"))
	var targets []string
	for _, line := range regexp.MustCompile(`(?m)^([a-z0-9-]+( [a-z0-9-]+)*):`).FindAllStringSubmatch(makefile, -1) {
		targets = append(targets, strings.Fields(line[1])...)
	}
	require.Contains(t, targets, "test")
	workflows, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	require.NoError(t, err)
	require.Len(t, workflows, 4)
	files := append(workflows, filepath.Join(root, ".ci/run"))
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "STABILITY.md"} {
		files = append(files, filepath.Join(root, name))
	}
	named := regexp.MustCompile("(?m)(?:^|run: |`|\\(MAKE\\)|^ {4}|and )\\s*make ([a-z][a-z0-9-]*)|\\(MAKE\\) ([a-z][a-z0-9-]*)")
	for _, name := range files {
		text := read(name)
		found := named.FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, found, name)
		for _, match := range found {
			target := match[1] + match[2]
			require.True(t, slices.Contains(targets, target), "%s: make %s, which is no target", name, target)
		}
	}
	for _, name := range workflows {
		text := read(name)
		for line := range strings.Lines(text) {
			if _, command, ok := strings.Cut(line, "run:"); ok {
				require.Regexp(t, `^ make [a-z0-9-]+( [A-Z]+=\w+)?\n$`, command, name)
			}
		}
	}
}

// What a person needs for each release stands in the document of the support matrix.
func TestStabilityNamesTheReleasesOfGo(t *testing.T) {
	makefile := read(filepath.Join(root, "Makefile"))
	releases := regexp.MustCompile(`(?m)^RELEASES +:= (.*)$`).FindStringSubmatch(makefile)
	require.NotNil(t, releases)
	text := read(filepath.Join(root, "STABILITY.md"))
	var minors []string
	for release := range strings.FieldsSeq(releases[1]) {
		minors = append(minors, strings.Join(strings.Split(strings.TrimPrefix(release, "go"), ".")[:2], "."))
	}
	require.Contains(t, text, "Go "+strings.Join(minors, " and "))
	for _, m := range ofCheckout(t).published() {
		require.Equal(t, minors[0]+".0", readGoMod(root, m).Go.Version, m.dir)
	}
}

// What links to a function of the runtime is only for the releases that the tests run with.
func TestPinnedShardsAreForTheReleasesOfGo(t *testing.T) {
	makefile := read(filepath.Join(root, "Makefile"))
	minors := regexp.MustCompile(`go1\.(\d+)\.\d+`).FindAllStringSubmatch(makefile, -1)
	last, err := strconv.Atoi(minors[len(minors)-1][1])
	require.NoError(t, err)
	for _, name := range []string{"shardpicker_pinned.go", "shardpicker_pinned.s", "shardpicker_pinned_test.go"} {
		text := read(filepath.Join(root, "timingwheel/internal/engine", name))
		require.Contains(t, text, fmt.Sprintf("//go:build gc && go1.%s && !go1.%d && ", minors[0][1], last+1), name)
	}
}
