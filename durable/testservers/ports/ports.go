// Package ports reserves ports of the loopback interface for servers in tests, which stop
// and start again.
package ports

import (
	"errors"
	"math/rand/v2"
	"net"
)

// The ports lie below those that systems give to outgoing connections and to listeners on
// port 0 (from 32768 on Linux). So while a server is down, no connection gets its port.
const (
	first = 20000
	last  = 32000
)

// Reservation is some ports. No other Reservation has them, in whatever process, until
// Release.
type Reservation struct {
	Ports []int

	// A socket of UDP on each port is what keeps it: TCP has numbers of its own.
	held []net.PacketConn
}

var errNone = errors.New("ports: no free port")

// Reserve finds n ports on which nobody listens, and keeps them.
func Reserve(n int) (*Reservation, error) {
	r := &Reservation{}
	for range 10 * (last - first) {
		if len(r.Ports) == n {
			return r, nil
		}
		r.try(first + rand.IntN(last-first))
	}
	r.Release()
	return nil, errNone
}

// try takes a port if it is free.
func (r *Reservation) try(port int) {
	ip := net.IPv4(127, 0, 0, 1)
	held, err := net.ListenUDP("udp", &net.UDPAddr{IP: ip, Port: port})
	if err != nil {
		return
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip, Port: port})
	if err != nil {
		held.Close()
		return
	}
	l.Close()
	r.Ports, r.held = append(r.Ports, port), append(r.held, held)
}

// Release gives the ports back.
func (r *Reservation) Release() {
	for _, held := range r.held {
		held.Close()
	}
}
