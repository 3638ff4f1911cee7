//go:build race

package protocol

import "testing"

// TestMain runs nothing: an exploration has one goroutine. The race detector would make it
// twenty times as slow, and find nothing.
func TestMain(*testing.M) {}
