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
func (w *world) killLeader(end time.Time) error {
	w.r.TwiceLimit = 0.001
	for i := range 3 {
		if err := w.startServer(i); err != nil {
			return err
		}
	}
	nc, err := w.connectCluster()
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := w.startClients(); err != nil {
		return err
	}
	if _, err := awaitLeader(nc); err != nil {
		return err
	}
	w.awaitWork(0)
	time.Sleep(5 * time.Second)
	for kills := 0; kills < w.set.leaders || time.Now().Before(end); kills++ {
		leader, err := awaitLeader(nc)
		if err != nil {
			return err
		}
		i, err := strconv.Atoi(strings.TrimPrefix(leader, "n"))
		if err != nil {
			return err
		}
		w.kill("server" + strconv.Itoa(i))
		time.Sleep(10 * time.Second)
		if err := w.startServer(i); err != nil {
			return err
		}
		time.Sleep(10 * time.Second) // it catches up; two of three have to be there
	}
	return nil
}

func (w *world) connectCluster() (*nats.Conn, error) {
	return nats.Connect(w.url(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true))
}

// stream is that of the only partition.
const stream = "TW_default_0"

// awaitLeader returns the name of the node that leads the stream.
func awaitLeader(nc *nats.Conn) (string, error) {
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
			return info.Cluster.Leader, nil
		}
	}
	return "", errors.New("the stream has no leader")
}
