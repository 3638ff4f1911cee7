//go:build !unix

package main

import "math"

// openFileLimit returns that there is none.
func openFileLimit() uint64 { return math.MaxUint64 }
