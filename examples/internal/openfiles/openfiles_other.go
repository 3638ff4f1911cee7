//go:build !unix

package openfiles

import "math"

// Limit returns that there is none.
func Limit() uint64 { return math.MaxUint64 }
