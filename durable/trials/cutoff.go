//go:build unix

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// mostElection is how long others may take to elect a leader.
const mostElection = 25 * time.Second

// cutOff cuts the server that leads the stream off from the others, but not from its clients. It heals some
// seconds after the others have elected another leader; the old one has noticed by then, or not. Then the servers
// are told late what was sent meanwhile, or never.
func cutOff(w *world) {
	w.r.twice, w.r.shared = -1, true // a worker that is connected to that server loses its lease
	w.spec.Push, w.spec.Rate = pushesShared, max(1, w.spec.Rate/w.spec.Nodes)
	w.routes = map[[2]int]*proxy{}
	for from := range w.spec.Nodes {
		for to := range w.spec.Nodes {
			if from != to {
				w.routes[[2]int{from, to}] = w.newProxy(fmt.Sprint("127.0.0.1:", w.ports[w.spec.Nodes+to]))
			}
		}
	}
	urls := strings.Split(w.url(), ",")
	w.awaitWork(func() {
		w.startServers()
		for i, url := range urls {
			w.start("producer"+strconv.Itoa(i), "producer", func(s *spec) { s.URL = url })
		}
		w.start(worker(0), "worker")
		w.start(worker(1), "worker")
	})
	var clients []*nats.Conn
	for _, url := range urls {
		nc := get(connectNATS(url))
		defer nc.Close()
		clients = append(clients, nc)
	}
	w.until(1, 3*time.Second, 3*time.Second, func(n int) {
		old := leaderOf(clients[n%len(clients)])
		i := get(strconv.Atoi(strings.TrimPrefix(old, "n")))
		heal := w.cutRoutes(i)
		elected := w.awaitElection(clients[(i+1)%len(clients)], old)
		pause(3*time.Second, 7*time.Second)
		heal(n%2 == 1)
		if elected {
			w.r.Happened++
		}
		w.awaitGoingOn(func() {})
	})
}

// awaitElection waits until a server knows of another leader of the stream than the old one, but not for ever: a
// vote may need all servers.
func (w *world) awaitElection(nc *nats.Conn, old string) bool {
	js := get(nc.JetStream(nats.MaxWait(time.Second)))
	for end := time.Now().Add(mostElection); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if info, err := js.StreamInfo(stream); err == nil && info.Cluster != nil && info.Cluster.Leader != "" && info.Cluster.Leader != old {
			return true
		}
	}
	return false
}

// cutRoutes lets nothing pass to and from a server, until the function is called that it returns: with true,
// what was sent meanwhile is lost, and so are the connections.
func (w *world) cutRoutes(i int) (heal func(loses bool)) {
	var cut []*proxy
	for ends, p := range w.routes {
		if ends[0] == i || ends[1] == i {
			p.gate.Lock()
			cut = append(cut, p)
		}
	}
	return func(loses bool) {
		for _, p := range cut {
			if loses {
				p.some(1, (*link).cut)
			}
		}
		for _, p := range cut {
			p.gate.Unlock()
		}
	}
}
