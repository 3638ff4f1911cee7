//go:build race

package protocol

// raced is whether the race detector is on. It makes an exploration twenty times as slow
// and finds nothing, since that has one goroutine; so the large worlds are left out.
const raced = true
