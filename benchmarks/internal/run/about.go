package run

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
)

// About describes the machine and the run, in the form of benchmark configuration.
func About(args []string) []result.Setting {
	return []result.Setting{
		{Key: "goos", Value: runtime.GOOS},
		{Key: "goarch", Value: runtime.GOARCH},
		{Key: "cpu", Value: field("/proc/cpuinfo", "model name")},
		{Key: "cores", Value: strconv.Itoa(runtime.NumCPU())},
		{Key: "memory", Value: field("/proc/meminfo", "MemTotal")},
		{Key: "kernel", Value: output("uname", "-sr")},
		{Key: "go", Value: runtime.Version()},
		{Key: "date", Value: time.Now().UTC().Format("2006-01-02 15:04 MST")},
		{Key: "quiet", Value: Quiet(3 * time.Second)},
		{Key: "command", Value: strings.TrimSpace("go run . " + strings.Join(args, " "))},
	}
}

// field returns the value of the first line "name: value" of a file, or "unknown".
func field(file, name string) string {
	content, _ := os.ReadFile(file)
	for line := range strings.Lines(string(content)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
