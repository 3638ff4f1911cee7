//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// lastRelease is the tag of the last release, whose workers are replaced by newer ones. While
// there is none, the packages of this checkout are the older ones. The printed steps of a
// release say to set it.
const lastRelease = ""

// change is a change of a file of the checkout, which is named from here. Without old text the
// file is a new one.
type change struct{ file, old, new string }

// addedField makes a build that stores one more field with each job: its payload. The build
// fails if a job that it has added comes without the field.
var addedField = []change{
	{"../jetstream/wire.go", "type wire struct {\n", "type wire struct {\n\tAdded string `json:\"added,omitempty\"`\n"},
	{"../jetstream/wire.go", "json.Marshal(wire{\n", "json.Marshal(wire{\nAdded: string(r.Payload),\n"},
	{"../jetstream/wire.go", "\tif len(payload) == 0 {\n", "if w.Added != string(payload) { panic(w.ID + \": the added field was not passed on\") }\n\tif len(payload) == 0 {\n"},
}

// addedColumn is addedField on PostgreSQL: such a build can read no job that has lost the column.
var addedColumn = []change{
	{"../postgres/sql/2.sql", "", "alter table tickwheel.job add column added text; update tickwheel.format set version = 2"},
	{"../postgres/sql/insert.sql", "retain, ord)\n", "retain, added, ord)\n"},
	{"../postgres/sql/insert.sql", "(r.m->>'retain')::int8,\n", "(r.m->>'retain')::int8, convert_from(r.payload, 'UTF8'),\n"},
	{"../postgres/sql/insert_new.sql", "flags, retain)\n", "flags, retain, added)\n"},
	{"../postgres/sql/insert_new.sql", "(r.m->>'retain')::int8\n", "(r.m->>'retain')::int8, convert_from(r.payload, 'UTF8')\n"},
	{"../postgres/sql/fetch.sql", "j.kind, j.payload,", "j.kind, case when coalesce(j.added, '') = convert_from(j.payload, 'UTF8') then j.payload else substring(j.payload, 1, -1) end,"},
}

// nextVersion makes a build that raises the version of JetStream's streams, and nextSchema one that
// raises the version of PostgreSQL's schema.
var (
	nextVersion = []change{{"../jetstream/version.go", "const wireVersion = 1\n", "const wireVersion = 2\n"}}
	nextSchema  = []change{
		{"../postgres/sql/2.sql", "", renamed("alter table tickwheel.%[1]s rename to %[1]s_2; ", "") + "update tickwheel.format set version = 2, oldest = 2"},
		{"../postgres/statements.go", "return string(text)", "return strings.NewReplacer(" + renamed("`tickwheel.%[1]s`, `tickwheel.%[1]s_2`", ", ") + ").Replace(string(text))"},
	}
)

// renamed formats each table that programs write.
func renamed(format, between string) string {
	var all []string
	for _, table := range []string{"job", "worker", "schedule", "flow_control", "counter", "cancel_request"} {
		all = append(all, fmt.Sprintf(format, table))
	}
	return strings.Join(all, between)
}

// build builds the worker in a directory, with the packages of the checkout around it.
func build(t *testing.T, dir string, changes ...change) string {
	changed, texts := map[string]string{}, map[string]string{}
	for i, c := range changes {
		path, err := filepath.Abs(c.file)
		require.NoError(t, err)
		if texts[path] == "" {
			text, err := os.ReadFile(path)
			require.Equal(t, c.old == "", os.IsNotExist(err), "%s: %v", c.file, err)
			texts[path], changed[path] = string(text), filepath.Join(t.TempDir(), strconv.Itoa(i)+".go")
		}
		require.Equal(t, 1, strings.Count(texts[path], c.old), c.old)
		texts[path] = strings.Replace(texts[path], c.old, c.new, 1)
		require.NoError(t, os.WriteFile(changed[path], []byte(texts[path]), 0o600))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": changed})
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "worker")
	require.NoError(t, os.WriteFile(name+".json", overlay, 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", name+".json", "-o", name, ".")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return name
}

// older builds the worker with the packages of the last release. A copy that has no history, as
// a download of a module has none, cannot.
func older(t *testing.T) string {
	if lastRelease == "" {
		return build(t, "rolling")
	}
	out, err := exec.CommandContext(t.Context(), "git", "rev-parse", "--show-toplevel").Output()
	if err != nil || exec.CommandContext(t.Context(), "git", "cat-file", "-e", lastRelease+"^{commit}").Run() != nil {
		t.Skip("the last release is not in this checkout's history:", lastRelease)
	}
	archive, dir := filepath.Join(t.TempDir(), "release.tar"), t.TempDir()
	cmd := exec.CommandContext(t.Context(), "git", "archive", "-o", archive, lastRelease)
	cmd.Dir = strings.TrimSpace(string(out))
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	source, err := os.ReadFile("rolling/main.go")
	require.NoError(t, err)
	worker := filepath.Join(dir, "durable", "trials", "rolling")
	require.NoError(t, os.MkdirAll(worker, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(worker, "main.go"), source, 0o600))
	return build(t, worker)
}

// Workers are replaced by newer ones, one after the other, while jobs are added and run: each
// job runs, and once, beside a build that stores one more field, which the older workers pass
// on. Beside one of the next version the older ones end, and what they were running runs again.
func TestRolling(t *testing.T) {
	t.Parallel()
	old, added := older(t), build(t, "rolling", addedField...)
	t.Run("JetStream", func(t *testing.T) {
		s := newStore(onJetStream)
		defer s.remove()
		roll(t, old, added, s.url, false)
	})
	t.Run("JetStream, the next version", func(t *testing.T) {
		s := newStore(onJetStream)
		defer s.remove()
		roll(t, old, build(t, "rolling", nextVersion...), s.url, true)
	})
	t.Run("PostgreSQL", func(t *testing.T) { roll(t, old, build(t, "rolling", addedColumn...), pgserver.Test(t).DSN(), false) })
	t.Run("PostgreSQL, the next version", func(t *testing.T) {
		roll(t, old, build(t, "rolling", nextSchema...), pgserver.Test(t).DSN(), true)
	})
}

const rolled = 200 // jobs that each worker adds

// roll replaces old workers by young ones, which raise the version of the store, or do not.
func roll(t *testing.T, old, young, store string, raised bool) {
	dir := t.TempDir()
	count := func(of string, what rune) int { return linesIn(dir, of, what, nil) }
	inWorld(dir, "", func(w *world) {
		start := func(name, worker, payload string) {
			w.launch(name, exec.Command(worker, store, strconv.Itoa(rolled), filepath.Join(dir, "ledger-"+name), payload))
			require.Eventually(t, func() bool { return count(name, accepted) == rolled || w.procs[name].hasEnded() }, 2*patience, 10*time.Millisecond)
			require.False(t, w.procs[name].hasEnded(), name)
		}
		start("old1", old, "")
		start("old2", old, "")
		start("young1", young, "added")
		if raised { // each reads the version at most a second later, and more on a busy machine
			require.Eventually(t, func() bool { return count("old", 'Z') == 2 }, patience, 10*time.Millisecond, "the older ones end")
		}
		w.stop("old1")
		start("young2", young, "added")
		w.stop("old2")
		var a account
		require.Eventually(t, func() bool { a = audit(dir); return a.Broken.Lost == 0 }, 2*patience, 100*time.Millisecond)
		w.stop("young1")
		w.stop("young2")
		a = audit(dir)
		outdated := count("old", 'Z')
		t.Logf("%d ran in old workers, %d in young ones; %d of the former ended because the version was raised", count("old", began), count("young", began), outdated)
		require.Equal(t, 4*rolled, a.Accepted)
		require.Zero(t, a.Stray+a.Broken.Lost)
		require.True(t, a.Twice == 0 || raised, "%d ran twice", a.Twice)
		require.Equal(t, map[bool]int{true: 2}[raised], outdated)
		require.Positive(t, count("old", began))
		require.Positive(t, count("young", began))
		require.Zero(t, w.r.Broken.Died)
	})
}
