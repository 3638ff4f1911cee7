// Serve runs a NATS server with JetStream for as long as its standard input is open, and prints its
// address when it is ready: for tests, and to try something by hand.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	name := flag.String("name", "test", "name of the server")
	dir := flag.String("dir", "", "directory of its streams")
	port := flag.Int("port", -1, "port for clients; -1: a free one")
	routes := flag.String("routes", "", "ports of the servers of a cluster, its own first, as in 1,2,3; none: it is alone")
	flag.Parse()
	if err := serve(*name, *dir, *port, *routes); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

func serve(name, dir string, port int, routes string) error {
	opts := &server.Options{
		ServerName: name, Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true, JetStream: true,
		StoreDir: dir, JetStreamMaxStore: 4 << 30, JetStreamMaxMemory: 1 << 30, DisableJetStreamBanner: true,
	}
	if own, others, in := strings.Cut(routes, ","); in {
		var err error
		if opts.Cluster.Port, err = strconv.Atoi(own); err != nil {
			return err
		}
		opts.Cluster.Name, opts.Cluster.Host = "test", "127.0.0.1"
		for p := range strings.SplitSeq(others, ",") {
			opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: "127.0.0.1:" + p})
		}
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	srv.Start()
	if !srv.ReadyForConnections(time.Minute) {
		return errors.New("it does not start within a minute")
	}
	fmt.Println(srv.ClientURL())
	io.Copy(io.Discard, os.Stdin)
	srv.Shutdown()
	srv.WaitForShutdown()
	return nil
}
