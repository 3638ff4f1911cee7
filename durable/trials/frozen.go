//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// frozenLease is that of workers whose server is frozen. Such a worker has an answer within some five seconds, so
// that no lease is lost and no job runs twice.
const frozenLease = 15 * time.Second

// freezeServers returns a fault that freezes one of three nodes for a while, and then another: the one
// that leads the cluster, which has to be elected before a consumer can be made, or one that leads nothing.
// Clients are connected to any of them.
func freezeServers(leads bool) func(*world) {
	return func(w *world) {
		w.r.twice = 0
		w.spec.Lease = frozenLease
		w.startAll()
		nc := get(connectNATS(w.url()))
		defer nc.Close()
		w.until(1, 2*time.Second, 4*time.Second, func(int) {
			i := metaLeaderOf(nc)
			if !leads {
				i = otherThan(i, leaderOf(nc))
			}
			w.freezeFor("server"+strconv.Itoa(i), 5*time.Second+rand.N(min(20*time.Second, w.set.length)))
			w.awaitGoingOn(func() {})
		})
		w.spec.Lease = lease // of the worker that runs the rest
	}
}

// otherThan returns a node that is neither of two.
func otherThan(meta int, stream string) int {
	for i := range 3 {
		if i != meta && "n"+strconv.Itoa(i) != stream {
			return i
		}
	}
	panic("of three, two are others")
}

// metaLeaderOf returns the node that leads the cluster: it answers this request, and says so in a notice.
func metaLeaderOf(nc *nats.Conn) int {
	const request = "$JS.API.STREAM.NAMES"
	notices := get(nc.SubscribeSync("$JS.EVENT.ADVISORY.API"))
	defer notices.Unsubscribe()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		must(nc.PublishRequest(request, nc.NewInbox(), nil))
		m, err := notices.NextMsg(time.Second)
		if err != nil {
			continue
		}
		var notice struct{ Server, Subject string }
		if must(json.Unmarshal(m.Data, &notice)); notice.Subject == request {
			return get(strconv.Atoi(notice.Server[1:]))
		}
	}
	must(errors.New("the cluster has no leader"))
	return 0
}
