// Package enginetest has the tests that every engine of package durable must pass, and
// [Memory], the simplest engine there is.
//
//	func TestEngine(t *testing.T) { enginetest.Run(t, newStore) }
//
// The tests run in real time, most of them in parallel, each on a store of its own. The
// environment variable ENGINETEST_RACES sets how many races between Cancel and Claim are
// run (2000 by default; 100000 takes some minutes), and ENGINETEST_OVERDUE with how many
// overdue jobs a worker starts (20000).
package enginetest

import (
	"testing"

	"github.com/tickwheel/tickwheel/durable"
)

// Store is where an engine keeps jobs: a server, a directory, a schema of a database.
type Store interface {
	// Open returns an engine on the store, as another process would have it. The store
	// closes it at the end of the test, if the test has not.
	Open(t testing.TB) durable.Engine

	// Restart ends what serves the store as a crash does, and starts it again. Engines that
	// were open before need not be usable after.
	Restart(t testing.TB)
}

// Run runs all tests on stores that newStore makes; each is empty, and its test's alone.
func Run(t *testing.T, newStore func(t testing.TB) Store) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newStore(t))
		})
	}
}

type testCase struct {
	name string
	run  func(t *testing.T, s Store)
}

var cases = []testCase{
	{"InsertRunGone", insertRunGone},
}
