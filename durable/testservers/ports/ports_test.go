package ports

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// Nobody gets a port twice, though nobody listens on it.
func TestReserve(t *testing.T) {
	const many = 4000 // a third: without a reservation hundreds would come twice
	seen := map[int]bool{}
	for range many / 4 {
		r, err := Reserve(4)
		if err != nil { // the system may allow fewer open files
			require.Greater(t, len(seen), 100)
			break
		}
		t.Cleanup(r.Release)
		for _, p := range r.Ports {
			require.False(t, seen[p], p)
			seen[p] = true
		}
	}
}

// The ports are free for servers, and a port in use is not given.
func TestServersGetTheirPorts(t *testing.T) {
	r, err := Reserve(2)
	require.NoError(t, err)
	defer r.Release()
	require.Len(t, r.Ports, 2)
	for _, p := range r.Ports {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		require.NoError(t, err)
		defer l.Close()
		var none Reservation
		none.try(p)
		require.Empty(t, none.Ports)
	}
	r.Release()
	var taken Reservation
	taken.try(r.Ports[0])
	require.Empty(t, taken.Ports, "somebody listens")
}
