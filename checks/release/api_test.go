package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnnamedIn(t *testing.T) {
	const text = "- `TimingWheel.Len` is `Length`.\n- Package `pool` is gone.\n"
	for _, change := range []string{
		"- ./timingwheel.(*TimingWheel).Len: removed",
		"- package example.com/m/timingwheel/pool: removed",
		"- ./timingwheel.Length: changed from func() int to func() int64",
		"Incompatible changes:",
	} {
		require.Empty(t, unnamedIn(text, change+"\n"), change)
	}
	for _, change := range []string{
		"- ./timingwheel.Timer.Reset: changed from func() to func() error",
		"- ./timingwheel.(*TimingWheel).Le: removed",
		"- DefaultTick: value changed from 1 to 2",
	} {
		require.Equal(t, []string{change}, unnamedIn(text, "Incompatible changes:\n"+change+"\n"))
	}
}
