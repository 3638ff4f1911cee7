package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each service runs occurrences, and none runs twice. (A machine that is busy may be slow to
// begin.)
func TestEmbedded(t *testing.T) {
	var out bytes.Buffer
	dir := t.TempDir()
	for period := 3 * time.Second; period < time.Minute; period *= 2 {
		require.NoError(t, run(t.Context(), dir, "", period, &out))
		if strings.Contains(out.String(), "stores it") && strings.Contains(out.String(), "does not know it") {
			break
		}
	}
	require.Contains(t, out.String(), "the service that stores it")
	require.Contains(t, out.String(), "one that does not know it")
	seen := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		at, _, _ := strings.Cut(line, ": ")
		require.False(t, seen[at], "twice: %s", out.String())
		seen[at] = true
	}
}

func TestBadAddress(t *testing.T) {
	require.Error(t, run(t.Context(), "", "postgres://127.0.0.1:1/none?connect_timeout=1", time.Second, &bytes.Buffer{}))
}
