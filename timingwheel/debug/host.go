package debug

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// A page that is bound to loopback has no password, because only people on this machine
// reach it. DNS rebinding breaks that: a web site that somebody on this machine visits
// gives its own name the address 127.0.0.1, and then its scripts may read the page,
// because for the browser both are one site. The name that the browser asked for is in
// the Host header, where a script cannot change it.
//
// So a request that came in on a loopback address must name a host that no stranger can
// own in the DNS: an IP address, localhost, or a name without a dot. On other addresses
// the right names are not known here, and nothing is checked.

// foreign reports whether r came in on a loopback address for somebody else's name.
func foreign(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.IP.IsLoopback() && !isLocalName(r.Host)
}

// isLocalName reports whether host, with or without a port, is a name that no stranger
// can own. An empty host is one: browsers always send a name.
func isLocalName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return !strings.Contains(host, ".") || strings.HasSuffix(host, ".localhost")
}
