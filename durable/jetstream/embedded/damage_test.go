package embedded_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
)

// journal is what was logged.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

func (j *journal) option() embedded.Option {
	return embedded.WithLogger(slog.New(slog.NewTextHandler(j, nil)))
}

// stored is a directory with jobs that are due some time, and what was stored in it.
type stored struct {
	dir  string
	refs []durable.Ref
}

// small is the option of a small store, whose blocks have 4 MB; those of a large one have twice as much.
var small = embedded.WithMaxStore(16 << 20)

// newStored returns a directory of several blocks, as a kill leaves it, or a Close.
func newStored(t *testing.T, closed bool) *stored {
	s := &stored{dir: t.TempDir()}
	_, q := open(t, s.dir, small)
	for range 13 {
		jobs := make([]durable.Job, 50)
		for i := range jobs {
			jobs[i] = durable.Job{Kind: "k", After: time.Hour, Payload: bytes.Repeat([]byte("x"), 16<<10)}
		}
		refs, err := q.AddMany(within(t), jobs...)
		require.NoError(t, err)
		s.refs = append(s.refs, refs...)
	}
	if !closed {
		image := t.TempDir() // what a process that is killed now leaves
		require.NoError(t, os.CopyFS(image, os.DirFS(s.dir)))
		s.dir = image
	}
	require.NoError(t, q.Close())
	require.Greater(t, len(s.blocks(t)), 2)
	return s
}

// copy returns one with a directory of its own.
func (s *stored) copy(t *testing.T) *stored {
	c := &stored{dir: t.TempDir(), refs: s.refs}
	require.NoError(t, os.CopyFS(c.dir, os.DirFS(s.dir)))
	return c
}

// blocks returns the paths of the stream's blocks, the oldest first.
func (s *stored) blocks(t *testing.T) []string {
	found, err := filepath.Glob(filepath.Join(s.dir, "jetstream", "*", "streams", "TW_default_0", "msgs", "*.blk"))
	require.NoError(t, err)
	slices.SortFunc(found, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return found
}

func flip(t *testing.T, path string, at int64) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	require.NoError(t, err)
	b[0] ^= 4
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
}

func half(t *testing.T, path string) int64 {
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size() / 2
}

// left counts the jobs that can be found.
func (s *stored) left(t *testing.T, q *durable.Queue) (n int) {
	for _, err := range q.All(within(t), durable.Filter{}) {
		require.NoError(t, err)
		n++
	}
	return n
}

// A store that is damaged does not open without a word: it is an error that says what is
// lost, and changes nothing. Who accepts the loss gets the rest, and the next start is as
// ever.
func TestDamage(t *testing.T) {
	models := map[bool]*stored{true: newStored(t, true), false: newStored(t, false)}
	streams := func(s *stored) string { return filepath.Dir(filepath.Dir(filepath.Dir(s.blocks(t)[0]))) }
	for name, c := range map[string]struct {
		damage   func(s *stored)
		text     string
		lost     [2]int // of 650 jobs: at least, at most
		onlyThen bool   // it can be seen only after a Close
	}{
		"flipped byte": {
			damage: func(s *stored) { flip(t, s.blocks(t)[1], half(t, s.blocks(t)[1])) },
			text:   "bytes of 2.blk cannot be read", lost: [2]int{1, 1},
		},
		"flipped in the first block": {
			damage: func(s *stored) { flip(t, s.blocks(t)[0], half(t, s.blocks(t)[0])) },
			text:   "bytes of 1.blk cannot be read", lost: [2]int{1, 1},
		},
		"flipped length": {
			damage: func(s *stored) { flip(t, s.blocks(t)[1], 0) },
			text:   "bytes of 2.blk cannot be read", lost: [2]int{1, 1},
		},
		"cut block": {
			damage: func(s *stored) { require.NoError(t, os.Truncate(s.blocks(t)[1], half(t, s.blocks(t)[1])+100)) },
			text:   "2.blk", lost: [2]int{10, 400},
		},
		"deleted block": {
			damage: func(s *stored) { require.NoError(t, os.Remove(s.blocks(t)[1])) },
			text:   "2.blk is gone", lost: [2]int{10, 400}, onlyThen: true,
		},
		"deleted first block": {
			damage: func(s *stored) { require.NoError(t, os.Remove(s.blocks(t)[0])) },
			text:   "1.blk is gone", lost: [2]int{10, 400}, onlyThen: true,
		},
		"deleted last block": {
			damage: func(s *stored) { require.NoError(t, os.Remove(s.blocks(t)[len(s.blocks(t))-1])) },
			text:   "blk is gone", lost: [2]int{1, 400}, onlyThen: true,
		},
		"deleted messages": {
			damage: func(s *stored) { require.NoError(t, os.RemoveAll(filepath.Dir(s.blocks(t)[0]))) },
			text:   "all messages of the stream TW_default_0 are gone", lost: [2]int{650, 650},
		},
		"deleted folder": {
			damage: func(s *stored) { require.NoError(t, os.RemoveAll(filepath.Dir(filepath.Dir(s.blocks(t)[0])))) },
			text:   "the stream TW_default_0 is gone", lost: [2]int{650, 650},
		},
		"deleted server": {
			damage: func(s *stored) { require.NoError(t, os.RemoveAll(filepath.Dir(filepath.Dir(streams(s))))) },
			text:   "the stream TW_default_0 is gone", lost: [2]int{650, 650},
		},
		"flipped description": {
			damage: func(s *stored) { flip(t, filepath.Join(streams(s), "TW_default_0", "meta.inf"), 100) },
			text:   "meta.inf does not have its checksum", onlyThen: true,
		},
	} {
		for state, closed := range map[string]bool{"closed": true, "killed": false} {
			if c.onlyThen && !closed {
				continue
			}
			t.Run(name+", "+state, func(t *testing.T) {
				s := models[closed].copy(t)
				c.damage(s)
				for range 2 { // the first time has changed nothing
					_, err := embedded.Open(within(t), s.dir, small)
					require.ErrorIs(t, err, durable.ErrStorage)
					require.ErrorContains(t, err, c.text)
				}
				log := &journal{}
				_, q := open(t, s.dir, small, embedded.WithAcceptLoss(), log.option())
				lost := len(s.refs) - s.left(t, q)
				require.GreaterOrEqual(t, lost, c.lost[0])
				require.LessOrEqual(t, lost, c.lost[1])
				require.Contains(t, log.String(), "level=ERROR")
				require.Contains(t, log.String(), c.text)
				if c.onlyThen && strings.Contains(name, "block") {
					require.Contains(t, log.String(), "could not locate msg block", "what the server says of it is heard")
				}
				s.goesOn(t, q, lost)
			})
		}
	}
}

// goesOn checks that a store whose loss was accepted takes jobs, and opens as ever.
func (s *stored) goesOn(t *testing.T, q *durable.Queue, lost int) {
	_, err := q.Add(within(t), durable.Job{Kind: "k", After: time.Hour})
	require.NoError(t, err)
	require.NoError(t, q.Close())
	_, q = open(t, s.dir, small)
	require.Equal(t, len(s.refs)-lost+1, s.left(t, q))
	require.NoError(t, q.Close())
}

// A file that is longer than when the store was closed was written by another program.
func TestGrownFile(t *testing.T) {
	s := newStored(t, true)
	last := s.blocks(t)[len(s.blocks(t))-1]
	info, err := os.Stat(last)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(last, info.Size()+100))
	_, err = embedded.Open(within(t), s.dir)
	require.ErrorIs(t, err, durable.ErrStorage)
	require.ErrorContains(t, err, "another program has written to it")
}

// An Open that fails leaves the directory as strictly checked as it was.
func TestFailedOpenKeepsTheAccount(t *testing.T) {
	s := newStored(t, true)
	_, err := embedded.Open(within(t), s.dir, embedded.WithJetStream(jetstream.WithQueue("typo"), jetstream.WithExistingOnly()))
	require.ErrorIs(t, err, jetstream.ErrNoQueue)
	require.NoError(t, os.Remove(s.blocks(t)[1]))
	_, err = embedded.Open(within(t), s.dir)
	require.ErrorIs(t, err, durable.ErrStorage)
}

// What a kill or a power cut leaves is no damage: it opens, and has what was accepted
// before the last write.
func TestKilledIsNoDamage(t *testing.T) {
	model := newStored(t, false)
	for how, spoil := range map[string]func(path string, size int64){
		"as it is": func(string, int64) {},
		"cut":      func(path string, size int64) { require.NoError(t, os.Truncate(path, size-3000)) },
		// The pages of a batch that is not synced yet reach the disk in any order.
		"hole in the last batch": func(path string, size int64) { flip(t, path, size-30*16500) },
	} {
		t.Run(how, func(t *testing.T) {
			s := model.copy(t)
			last := s.blocks(t)[len(s.blocks(t))-1]
			info, err := os.Stat(last)
			require.NoError(t, err)
			spoil(last, info.Size())
			log := &journal{}
			_, q := open(t, s.dir, small, log.option())
			require.GreaterOrEqual(t, s.left(t, q), len(s.refs)-50)
			require.Contains(t, log.String(), "level=WARN", "what the server says of it is heard")
			if how == "as it is" {
				require.NotContains(t, log.String(), "level=ERROR")
			}
			require.NoError(t, q.Close())
		})
	}
}

// A directory may have any name, also one that would be a pattern, or a wrong one.
func TestDirectoryLikeAPattern(t *testing.T) {
	for _, name := range []string{"jobs[1]", "jobs["} {
		dir := filepath.Join(t.TempDir(), name)
		_, q := open(t, dir)
		_, err := q.Add(within(t), durable.Job{Kind: "k", After: time.Hour})
		require.NoError(t, err)
		require.NoError(t, q.Close())
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "jetstream")))
		_, err = embedded.Open(within(t), dir)
		require.ErrorContains(t, err, "the stream TW_default_0 is gone")
	}
}
