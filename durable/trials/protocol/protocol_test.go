package protocol

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// worlds are what may happen together: all of it at once would be too much. Each has two
// workers. What needs both of them to close buckets, or much to go wrong, has one job.
var worlds = []world{
	{name: "workers freeze", jobs: 2, start: 1, left: budget{leases: 1}},
	{name: "workers die", jobs: 2, start: 1, left: budget{crashes: 2}},
	{name: "answers are lost", jobs: 2, start: 1, left: budget{lost: 1}},
	{name: "attempts fail", jobs: 2, again: true, start: 1},
	{name: "Cancel", jobs: 2, users: 1, cancel: true, start: 1},
	{name: "Cancel and Move", jobs: 1, users: 1, cancel: true, move: true, start: 0, left: budget{leases: 1}},
	{name: "Cancel of what is retried", due: 1, jobs: 1, users: 1, cancel: true, again: true, release: true, start: 1, left: budget{leases: 1}},
	{name: "Cancel without an answer", jobs: 1, users: 1, cancel: true, both: true, start: 1, left: budget{lost: 1, leases: 1}},
	{name: "all is handed out again", jobs: 1, users: 1, cancel: true, stale: true, start: 1, left: budget{leases: 1, remade: 1}},
	{name: "the far bucket", jobs: 2, start: 0},
	{name: "the far bucket, and Cancel", due: 2, jobs: 1, users: 1, cancel: true, both: true, start: 0, left: budget{crashes: 1}},
	{name: "the clock is set back", jobs: 2, prompt: true, start: 0, left: budget{back: 1}},
	{name: "the clock is set back twice", jobs: 2, start: 1, left: budget{back: 2}},
	{name: "the clock is set back, attempts fail", due: 2, jobs: 2, again: true, prompt: true, start: 1, left: budget{back: 1}},
	{name: "the clock is set back, Cancel and Move", jobs: 1, users: 1, cancel: true, move: true, start: 0, left: budget{back: 1}},
	{name: "several replicas", jobs: 2, replicas: true, start: 0, left: budget{back: 1}},
	{name: "several replicas, attempts fail", due: 2, jobs: 1, users: 1, cancel: true, again: true, replicas: true, start: 0, left: budget{back: 1, crashes: 1}},
	{name: "several replicas, no answer", jobs: 1, users: 1, cancel: true, replicas: true, start: 0, left: budget{back: 1, lost: 1}},
	{name: "the clock leaps", jobs: 1, users: 1, cancel: true, both: true, start: 1, left: budget{leases: 1, leaps: 1}},
	{name: "the clock leaps, and back", jobs: 1, users: 1, cancel: true, start: 0, left: budget{back: 1, leaps: 1}},
	{name: "the clock leaps, two jobs", jobs: 2, stale: true, start: 1, left: budget{leaps: 1}},
	{name: "two kinds", jobs: 2, kinds: true, due: 1, start: 1, left: budget{leases: 1}},
	{name: "two kinds, the far bucket", due: 2, jobs: 2, kinds: true, start: 0, left: budget{crashes: 1}},
	{name: "two kinds, several replicas, and Cancel", due: 1, jobs: 2, users: 1, cancel: true, kinds: true, replicas: true, start: 1, left: budget{lost: 1}},
	{name: "a kind that nobody runs, and Cancel", jobs: 2, users: 2, cancel: true, kinds: true, nobodys: true, due: 1, start: 1},
	{name: "a kind that nobody runs, and Move", jobs: 2, users: 2, cancel: true, move: true, kinds: true, nobodys: true, due: 1, start: 1},
	{name: "a removal is taken back", jobs: 1, users: 1, cancel: true, start: 1, left: budget{kills: 1}},
	{name: "a removal is taken back, the far bucket", due: 2, jobs: 1, users: 1, cancel: true, start: 0, left: budget{kills: 1}},
	{name: "a removal is taken back, attempts fail", due: 2, jobs: 1, again: true, start: 0, left: budget{kills: 1, crashes: 1}},
	{name: "both close buckets", due: 2, jobs: 2, replicas: true, both: true, start: 0},
}

// ofFaults are the moves that there are only with a fault put back.
var ofFaults = []string{"{w} sees that {j} waits", "{w} cannot remove anything from bucket {n}"}

// In no world is a promise broken, however its moves are interleaved. And each move is
// taken somewhere: one that never can be checks nothing.
func TestPromises(t *testing.T) {
	all, taken := 0, map[string]bool{}
	for _, w := range worlds {
		began := time.Now()
		sp := explore(w)
		t.Logf("%7d states, %8d moves, %6v: %s", len(sp.states), len(sp.edges), time.Since(began).Round(time.Millisecond), w.name)
		require.Empty(t, sp.broken, "%s:\n%s", w.name, strings.Join(sp.path, "\n"))
		all += len(sp.states)
		for what := range sp.taken {
			taken[what] = true
		}
	}
	t.Logf("%d states", all)
	for _, what := range said(t) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(taken)), func(s string) bool { return strings.HasPrefix(s, what) }) {
			require.Contains(t, ofFaults, what, "it is never taken")
		}
	}
}

// said returns the words of all moves.
func said(t *testing.T) (words []string) {
	literal := regexp.MustCompile(`"([^"\n]*\{[wjn]\}[^"\n]+|[^"\n]+\{[wjn]\})"`)
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range literal.FindAllStringSubmatch(string(text), -1) {
			words = append(words, m[1])
		}
	}
	require.Greater(t, len(words), 50)
	return words
}

// wrong is what was wrong once, or what somebody might leave out. The model finds each of
// it again.
var wrong = []struct {
	promise string // what is broken
	world   world
}{
	// A job that waits in a worker for longer than an hour.
	{"an accepted job is lost", world{name: "what is stale is acknowledged unseen", jobs: 2, stale: true, start: 1, faults: faults{staleIsGone: true}}},

	// The clock is set back.
	{"an accepted job is lost", world{name: "moveLate takes each conflict for another's doing", jobs: 2, prompt: true, start: 0, left: budget{back: 1}, faults: faults{lateIsGone: true, noWatermark: true}}},
	{"an Add is refused though nothing failed", world{name: "no watermark", jobs: 2, prompt: true, start: 1, left: budget{back: 1}, faults: faults{noWatermark: true}}},
	{"a failed attempt cannot be written down", world{name: "no watermark, attempts fail", jobs: 2, again: true, replicas: true, prompt: true, start: 1, left: budget{back: 1}, faults: faults{noWatermark: true}}},
	{"an accepted job never ends", world{name: "no watermark, nobody acknowledges", jobs: 2, prompt: true, start: 0, left: budget{back: 1}, faults: faults{noWatermark: true}}},
	{"it begins before its time", world{name: "moveLate changes when a job is due", jobs: 2, prompt: true, start: 0, left: budget{back: 1}, faults: faults{dueNow: true, noWatermark: true}}},
	{"the watermark goes down", world{name: "the watermark is what was closed last", jobs: 2, start: 1, faults: faults{watermarkFalls: true}}},

	// The lease is lost between the claim and the begin.
	{"what was canceled begins", world{name: "nobody looks at the lease", jobs: 1, users: 1, cancel: true, again: true, start: 1, left: budget{leases: 1}, faults: faults{beginsBlind: true}}},
	{"what was canceled begins", world{name: "a heartbeat hides that the lease was over", jobs: 1, users: 1, cancel: true, again: true, start: 1, left: budget{leases: 1}, faults: faults{heartbeatHides: true}}},
	{"what was canceled begins", world{name: "a lease is over when the server's clock says so", jobs: 1, users: 1, cancel: true, again: true, start: 1, left: budget{leaps: 1}, faults: faults{heartbeatsExpire: true}}},

	// What else was learnt.
	{"what was canceled begins", world{name: "a condition does not see what is under way", jobs: 1, users: 1, cancel: true, start: 1, faults: faults{wildcard: true}}},
	{"Cancel returns false though it has canceled", world{name: "one's own status is not known again", jobs: 1, users: 1, cancel: true, start: 1, left: budget{lost: 1}, faults: faults{tokenUnknown: true}}},
	{"Cancel returns false though it has canceled", world{name: "Cancel does not say that it does not know", jobs: 1, users: 1, cancel: true, start: 1, faults: faults{lostIsFalse: true}}},
	{"Cancel returns true, and it has run", world{name: "Cancel does not look at the mark", jobs: 1, users: 1, cancel: true, start: 1, faults: faults{cancelBlind: true}}},
	{"what has ended begins", world{name: "a repeated Add has no condition", jobs: 1, replicas: true, start: 1, left: budget{lost: 1}, faults: faults{repeatsBlind: true}}},
	{"what has ended begins", world{name: "a failed purge ends nothing", jobs: 1, start: 1, left: budget{lost: 1, remade: 1}, faults: faults{purgeIgnored: true}}},
	{"what was canceled begins", world{name: "statuses are removed before their jobs", jobs: 1, users: 1, cancel: true, start: 1, faults: faults{statusFirst: true}}},
	{"what has ended begins", world{name: "a status is taken back that is another's", jobs: 1, start: 1, left: budget{leases: 1, lost: 1}, faults: faults{undoesBlind: true}}},
	{"a copy of what has ended has no status that says so", world{name: "nobody looks at the far bucket", due: 2, jobs: 2, replicas: true, both: true, start: 0, faults: faults{forgetsFar: true}}},
	{"what was canceled begins", world{name: "moveLate does not ask for its message", jobs: 1, users: 1, cancel: true, both: true, start: 0, faults: faults{lateUnseen: true}}},
	{"what has ended begins", world{name: "moveLate asks before it writes", due: 2, jobs: 2, replicas: true, both: true, start: 0, faults: faults{lateUnwritten: true}}},
	{"what was canceled begins", world{name: "a bucket is open if it has no mark", jobs: 1, users: 1, cancel: true, start: 1, left: budget{leaps: 1}, faults: faults{marksOnly: true}}},

	{"an accepted job is lost", world{name: "the message goes before the status is there", due: 2, jobs: 1, users: 1, cancel: true, start: 0, faults: faults{leavesEarly: true}}},

	// Two kinds in a bucket.
	{"an accepted job is lost", world{name: "one purge for all kinds of a bucket", jobs: 2, kinds: true, replicas: true, due: 1, start: 1, faults: faults{onePurge: true}}},
	{"a copy of what has ended has no status that says so", world{name: "statuses of a kind go without a mark", jobs: 2, kinds: true, due: 2, both: true, start: 0, left: budget{crashes: 1}, faults: faults{thinsFates: true}}},
	{"an accepted job is lost", world{name: "what nobody runs is removed unread", jobs: 2, users: 2, cancel: true, kinds: true, nobodys: true, due: 1, start: 1, faults: faults{sweepsBlind: true}}},
	{"a copy of what has ended has no status that says so", world{name: "no note says that a bucket was empty", jobs: 1, start: 1, left: budget{kills: 1}, faults: faults{noteless: true}}},
	{"what has ended begins", world{name: "a claim does not look whether its message had been removed", jobs: 1, start: 1, left: budget{kills: 1}, faults: faults{claimsRemoved: true}}},
	{"what was canceled begins", world{name: "moveLate does not look whether its message had been removed", due: 2, jobs: 1, users: 1, cancel: true, start: 0, left: budget{kills: 1}, faults: faults{movesRemoved: true}}},
	{"a failed attempt cannot be written down", world{name: "a retry needs its old bucket open", jobs: 2, again: true, replicas: true, start: 1, faults: faults{guardsOld: true}}},
}

func TestFindsWhatIsWrong(t *testing.T) {
	for _, c := range wrong {
		t.Run(c.world.name, func(t *testing.T) {
			c.world.watch = c.promise
			sp := explore(c.world)
			require.Equal(t, c.promise, sp.broken)
			t.Logf("%s, found in %d states:\n%s", sp.broken, len(sp.states), strings.Join(sp.path, "\n"))
		})
	}
}
