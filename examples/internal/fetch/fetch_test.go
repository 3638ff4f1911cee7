package fetch

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGet(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/there" {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, "text")
	}))
	defer server.Close()
	require.NoError(t, Get(t.Context(), http.DefaultClient, server.URL+"/there"))
	require.EqualError(t, Get(t.Context(), http.DefaultClient, server.URL+"/else"), "404 Not Found")
	require.Error(t, Get(t.Context(), http.DefaultClient, "http://127.0.0.1:0"))
	require.Error(t, Get(t.Context(), http.DefaultClient, ":"))
}
