package embedded_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// A copy of a directory whose process was halted for it, in the middle of its work, has
// each job that was accepted before, or that job had run. The original goes on.
func TestCopyOfHalted(t *testing.T) {
	if dir := os.Getenv("HALTED_DIR"); dir != "" {
		busy(t, dir)
		return
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCopyOfHalted$")
	cmd.Env = append(os.Environ(), "HALTED_DIR="+filepath.Join(dir, "store"))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var mu sync.Mutex
	said := map[string]map[durable.Ref]bool{"added": {}, "ran": {}}
	read := make(chan bool)
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if word, ref, ok := strings.Cut(lines.Text(), " "); ok && said[word] != nil {
				mu.Lock()
				said[word][durable.Ref(ref)] = true
				mu.Unlock()
			}
		}
	}()
	count := func(word string) int {
		mu.Lock()
		defer mu.Unlock()
		return len(said[word])
	}
	require.Eventually(t, func() bool { return count("added") > 300 && count("ran") > 30 }, patience, time.Millisecond)
	mu.Lock()
	var refs []durable.Ref
	for ref := range said["added"] {
		refs = append(refs, ref)
	}
	mu.Unlock()
	page, err := os.ReadFile("../../BACKUP.md")
	require.NoError(t, err)
	script := regexp.MustCompile("(?s)```sh\n# halt.sh\n(.*?)```").FindSubmatch(page)[1]
	halt := exec.CommandContext(t.Context(), "sh", "-ec", string(script))
	halt.Dir, halt.Env = dir, append(os.Environ(), fmt.Sprint("PID=", cmd.Process.Pid))
	text, err := halt.CombinedOutput()
	require.NoError(t, err, "%s", text)
	ran := count("ran")
	require.Eventually(t, func() bool { return count("ran") > ran+10 }, patience, time.Millisecond, "it goes on")
	mu.Lock()
	before := maps.Clone(said["ran"]) // and few of after the copy: lines come in order
	mu.Unlock()
	require.NoError(t, cmd.Process.Kill())
	<-read
	cmd.Wait()

	_, q := open(t, filepath.Join(dir, "copy"))
	again, drain := run(t, q)
	copied := map[durable.Ref]bool{}
	for _, ref := range refs {
		if before[ref] || copied[ref] {
			continue
		}
		if info, err := q.Get(within(t), ref); err == nil && info.Job.Kind == "far" {
			continue
		}
		for !copied[ref] {
			select {
			case ref := <-again:
				copied[ref] = true
			case <-time.After(patience):
				t.Fatal(ref, " is lost")
			}
		}
	}
	drain()
}

// busy adds jobs and runs them, and says so, until it is killed.
func busy(t *testing.T, dir string) {
	_, q := open(t, dir)
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error { fmt.Println("ran", a.Ref); return nil })
	go q.Run(t.Context())
	for {
		for kind, after := range map[string]time.Duration{"k": 200 * time.Millisecond, "far": time.Hour} {
			refs, err := q.AddMany(t.Context(), durable.Job{Kind: kind, After: after})
			require.NoError(t, err)
			fmt.Println("added", refs[0])
		}
	}
}
