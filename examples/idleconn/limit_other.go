//go:build !unix

package main

import "math"

// openFileLimit reports that there is no limit.
func openFileLimit() uint64 { return math.MaxUint64 }
