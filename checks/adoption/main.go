// Command adoption puts other people's programs on the wheel and lets their own suites
// judge. It fetches each module by its version and copies it twice into a temporary
// folder. In one copy it changes the imports "time" and "context" to those of folder
// dropin, in all files, tests included: a test shares types, such as *time.Timer, with
// what it tests. Then it runs the tests of both copies in turn, and prints a table.
//
//	go run ./adoption -run 'yamux|gocron' -rounds 3
//
// The tests run in a network namespace of their own that has nothing but loopback. So the
// command needs Linux, unshare, ip, and root. Both copies are built for the Go version of
// this module, so that package time behaves alike in both, and without go vet, which knows
// package context by its path.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
)

func main() {
	log.SetFlags(0)
	match := flag.String("run", "", "only modules that match this regular `expression`")
	tests := flag.String("tests", "", "only tests that match this `expression`, as go test -run has it")
	rounds := flag.Int("rounds", 3, "runs of each suite, with package time and with the wheel in turn")
	checkout := flag.String("checkout", "..", "the `folder` of the core module")
	flag.Parse()
	chosen, err := regexp.Compile(*match)
	if err != nil {
		log.Fatal(err)
	}
	root, err := filepath.Abs(*checkout)
	if err != nil {
		log.Fatal(err)
	}
	temporary, err := os.MkdirTemp("", "adoption")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(temporary)
	var rows []row
	for i, m := range modules {
		if !chosen.MatchString(m.path) {
			continue
		}
		log.Printf("%s %s", m.path, m.version)
		t := trial{module: m, root: root, dir: filepath.Join(temporary, fmt.Sprint(i)), only: *tests}
		rows = append(rows, t.run(*rounds))
	}
	printTable(os.Stdout, rows)
}

// A module is one whose suite runs on a machine that has nothing but loopback.
type module struct {
	path, version string
	packages      []string
	tests         string // only these, as go test -run has it; empty: all
	skip          string // not these, as go test -skip has it
	because       string // the reason for skip
}

var modules = []module{
	{path: "github.com/hashicorp/yamux", version: "v0.1.2", packages: []string{"."}},
	{path: "github.com/jellydator/ttlcache/v3", version: "v3.4.1", packages: []string{"."}},
	{path: "github.com/hashicorp/memberlist", version: "v0.7.0", packages: []string{"."}},
	{path: "github.com/go-co-op/gocron/v2", version: "v2.21.2", packages: []string{"."}},
	{path: "github.com/quic-go/quic-go", version: "v0.65.0", packages: []string{"."}},
	{path: "github.com/pion/turn/v4", version: "v4.1.4", packages: []string{".", "./internal/..."},
		skip: "TestClientWithSTUN/SendBindingRequest", because: "it asks a server on the Internet"},
	{path: "k8s.io/client-go", version: "v0.37.2", packages: []string{"./util/workqueue", "./util/flowcontrol"}},
	{path: "github.com/centrifugal/centrifuge", version: "v0.40.1", packages: []string{"."}},
	{path: "google.golang.org/grpc", version: "v1.85.0", packages: []string{".", "./internal/transport"}},
	{path: "github.com/nats-io/nats-server/v2", version: "v2.15.2", packages: []string{"./server"},
		tests: "^Test(Client|Parse|Sublist|IPQueue|Auth|Ping|Ring|Server|Route|MemStore)"},
}
