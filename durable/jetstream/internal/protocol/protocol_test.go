package protocol

import (
	"strings"
	"testing"
	"time"
)

func TestTry(t *testing.T) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			began := time.Now()
			sp := explore(w)
			t.Logf("%s: %d states, %d edges, %v", w.name, len(sp.states), len(sp.edges), time.Since(began))
			if sp.broken != "" {
				t.Errorf("%s:\n%s", sp.broken, strings.Join(sp.path, "\n"))
			}
		})
	}
}

var worlds = []world{
	{name: "life", jobs: 2, start: 1, left: budget{leases: 1, crashes: 1}},
	{name: "lost", jobs: 2, start: 1, left: budget{lost: 1, leases: 1}},
	{name: "retry", jobs: 2, again: true, start: 1, left: budget{leases: 1}},
	{name: "retryone", jobs: 1, again: true, users: 1, cancel: true, release: true, start: 1, left: budget{leases: 2, crashes: 1}},
	{name: "cancel1", jobs: 1, users: 1, start: 1, cancel: true, both: true, left: budget{lost: 1, leases: 1, remade: 1}},
	{name: "cancel", jobs: 2, users: 1, start: 1, cancel: true, left: budget{leases: 1}},
	{name: "move", jobs: 2, users: 1, start: 0, cancel: true, move: true, left: budget{}},
	{name: "far", jobs: 2, start: 0, left: budget{crashes: 1, lost: 1}},
	{name: "farone", jobs: 1, start: 0, users: 1, both: true, cancel: true, left: budget{crashes: 1, lost: 1}},
	{name: "back", jobs: 2, start: 0, left: budget{back: 1}},
	{name: "backretry", jobs: 2, start: 1, again: true, left: budget{back: 1}},
	{name: "backone", jobs: 1, users: 1, cancel: true, move: true, start: 0, left: budget{back: 1, leases: 1}},
	{name: "R3", jobs: 2, replicas: true, start: 0, left: budget{}},
	{name: "R3one", jobs: 1, users: 1, both: true, cancel: true, replicas: true, start: 0, left: budget{back: 1, crashes: 1}},
	{name: "stale", jobs: 1, both: true, stale: true, start: 1, users: 1, cancel: true, left: budget{leases: 1, remade: 1}},
	{name: "leap", jobs: 1, both: true, stale: true, start: 1, users: 1, cancel: true, left: budget{leases: 1, leaps: 1}},
	{name: "leaptwo", jobs: 2, stale: true, start: 1, left: budget{leaps: 1}},
}
