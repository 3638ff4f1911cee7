package timingwheel

import "testing"

// unlessShort is how often a test does what it does, or how much of it: n times, or less
// often under -short.
func unlessShort(n, short int) int {
	if testing.Short() {
		return short
	}
	return n
}
