package stream

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// oldServer is one that says its version, and answers pings.
type oldServer string

func (o oldServer) InProcessConn() (net.Conn, error) {
	client, srv := net.Pipe()
	go func() {
		defer srv.Close()
		fmt.Fprintf(srv, "INFO {\"server_id\":\"x\",\"version\":%q,\"max_payload\":1048576,\"headers\":true,\"proto\":1}\r\n", string(o))
		lines := bufio.NewScanner(srv)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "PING") {
				fmt.Fprint(srv, "PONG\r\n")
			}
		}
	}()
	return client, nil
}

// A server that is too old is refused by name. One whose version cannot be read may be new enough.
func TestServerTooOld(t *testing.T) {
	t.Parallel()
	for version, old := range map[string]bool{
		"2.10.27": true, "2.11.17": true, "2.12.6": true, "1.99.99": true, "2.12.7-RC.1": false, "2.12.7": false, "2.13.0": false, "3.0.0": false, "dev": false, "2.x.1": false,
	} {
		nc, err := nats.Connect("", nats.InProcessServer(oldServer(version)), nats.Timeout(time.Minute))
		require.NoError(t, err)
		defer nc.Close()
		err = CheckServer(nc, LeastServer)
		if !old {
			require.NoError(t, err, version)
			continue
		}
		require.ErrorIs(t, err, errTooOld)
		require.ErrorContains(t, err, "this server is "+version)
	}
}
