package debug

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A web site that gives its name the address of this machine gets nothing.
func TestRebinding(t *testing.T) {
	h := NewHandler()
	f := newFake()
	h.add("a", f)
	server := httptest.NewServer(h)
	defer server.Close()
	ask := func(host, query string) int {
		r, err := http.NewRequest(http.MethodGet, server.URL+"/"+query, nil)
		require.NoError(t, err)
		r.Host = host
		resp, err := server.Client().Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	for _, query := range []string{"", "?format=json", "?format=html", "?format=events", "?file=page.js"} {
		require.Equal(t, http.StatusForbidden, ask("rebound.example:6060", query), query)
	}
	require.Zero(t, f.asked.Load()+f.snapshots.Load())
	for _, host := range []string{"", "localhost", "localhost:6060", "127.0.0.1:6060", "[::1]:6060"} { // "" is the server's own
		require.Equal(t, http.StatusOK, ask(host, "?format=json"), host)
	}
}

func TestLocalNames(t *testing.T) {
	for _, host := range []string{"", "localhost", "LOCALHOST:80", "localhost.", "localhost.:80", "app.localhost", "127.0.0.1", "127.0.0.1:1",
		"10.1.2.3:80", "::1", "[::1]", "[::1]:80", "[fe80::1%25eth0]:80", "desk", "desk:8080"} {
		require.True(t, isLocalName(host), host)
	}
	for _, host := range []string{"rebound.example", "rebound.example:80", "rebound.example.", "127.0.0.1.rebound.example", "localhost.rebound.example:80",
		"rebound.localhost.example", "127.0.0.1x.example", "notlocalhost.org", "a.b:"} {
		require.False(t, isLocalName(host), host)
	}
}

// On another address, or behind a listener that is no network's, any name will do.
func TestOnlyLoopbackChecksNames(t *testing.T) {
	h := NewHandler()
	r := httptest.NewRequest(http.MethodGet, "http://wheels.example/?format=json", nil)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	require.Equal(t, http.StatusOK, rec.Code)
}
