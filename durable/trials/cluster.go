//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// killLeader kills the node that leads the stream, twice a minute at most, and starts it
// again when the others have elected another.
func (w *world) killLeader() {
	w.r.TwiceLimit = 0.001
	w.startServers()
	nc := get(connectNATS(w.url()))
	defer nc.Close()
	w.startClients()
	leaderOf(nc)
	w.awaitWork(0)
	time.Sleep(5 * time.Second)
	w.until(w.set.leaders, func(int) {
		i := get(strconv.Atoi(strings.TrimPrefix(leaderOf(nc), "n")))
		w.kill("server" + strconv.Itoa(i))
		time.Sleep(10 * time.Second)
		w.startServer(i)
		time.Sleep(10 * time.Second) // it catches up; two of three have to be there
	})
}

// stream is that of the only partition.
const stream = "TW_default_0"

// leaderOf returns the name of the node that leads the stream, once one does.
func leaderOf(nc *nats.Conn) string {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		m, err := nc.Request("$JS.API.STREAM.INFO."+stream, nil, time.Second)
		if err != nil {
			continue
		}
		var info struct {
			Cluster struct {
				Leader string `json:"leader"`
			} `json:"cluster"`
		}
		if json.Unmarshal(m.Data, &info) == nil && info.Cluster.Leader != "" {
			return info.Cluster.Leader
		}
	}
	must(errors.New("the stream has no leader"))
	return ""
}
