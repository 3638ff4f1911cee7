package openfiles

import (
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAffordable(t *testing.T) {
	for _, test := range []struct {
		n, each int
		limit   uint64
		want    int
		says    string
	}{
		{10_000, 2, math.MaxUint64, 10_000, ""},
		{10_000, 2, 20_064, 10_000, ""},
		{10_000, 2, 20_063, 9999, "limit on open files is 20063: opening 9999 connections, not 10000\n"},
		{10_000, 1, 1024, 960, "limit on open files is 1024: opening 960 connections, not 10000\n"},
		{10, 1, 1024, 10, ""},
	} {
		var out strings.Builder
		n, err := Affordable(test.n, test.each, test.limit, &out)
		require.NoError(t, err)
		require.Equal(t, test.want, n)
		require.Equal(t, test.says, out.String())
	}
	for _, limit := range []uint64{0, 10, 65} {
		_, err := Affordable(10, 2, limit, io.Discard)
		require.ErrorContains(t, err, "too low for a connection")
	}
	require.Positive(t, Limit())
}
