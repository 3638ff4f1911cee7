package integrations

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The tutorial of package durable grows one program. Each step is built as the text has it, and
// runs until it has printed the lines that the text promises.
func TestTutorial(t *testing.T) {
	text, err := os.ReadFile("../../durable/TUTORIAL.md")
	require.NoError(t, err)
	steps := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, steps, 4)
	const place = "\t// The next steps go here.\n"
	program := steps[0][1]
	require.Contains(t, program, place)
	wants := []string{
		"remind: call back",
		"mail: welcome, at attempt 3",
		`report: the one of \d\d:\d\d:\d\d`,
		"(?s)(export: for bob.*export: for ann|export: for ann.*export: for bob.*export: for ann)", // bob's is not the last
	}
	for i, want := range wants {
		if i > 0 {
			program = strings.Replace(program, place, steps[i][1]+place, 1)
		}
		t.Run(fmt.Sprintf("step %d", i+1), func(t *testing.T) { runs(t, program, want) })
	}
}

// runs builds a program, starts it in an empty folder, and ends it by an interrupt when its
// output matches want.
func runs(t *testing.T, program, want string) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
	bin := filepath.Join(dir, "tutorial")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, filepath.Join(dir, "main.go")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	c := exec.CommandContext(t.Context(), bin)
	c.Dir = dir
	output, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	giveUp := time.AfterFunc(5*time.Minute, func() { _ = c.Process.Kill() })
	defer giveUp.Stop()
	var printed strings.Builder
	for lines := bufio.NewScanner(output); lines.Scan(); {
		fmt.Fprintln(&printed, lines.Text())
		if regexp.MustCompile(want).MatchString(printed.String()) {
			_ = c.Process.Signal(os.Interrupt)
		}
	}
	require.Regexp(t, want, printed.String())
	require.NoError(t, c.Wait(), "%s", printed.String())
}
