//go:build unix

package openfiles

import (
	"math"
	"syscall"
)

// Limit returns the soft limit on open files. Go raises it to the hard limit when a program
// starts.
func Limit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxUint64 // then opening too many says so
	}
	return uint64(limit.Cur)
}
