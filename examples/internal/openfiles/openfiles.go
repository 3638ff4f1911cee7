// Package openfiles tells how many connections the limit on open files allows, for examples
// that open thousands.
package openfiles

import (
	"fmt"
	"io"
)

// spare is the number of descriptors left for other things than connections: standard
// streams, the listener, what the runtime polls with, what a shell left open.
const spare = 64

// Affordable returns how many of n connections can be opened within a limit on open files,
// if each takes this many descriptors. It says so if these are fewer than n, and returns an
// error if there are none.
func Affordable(n, each int, limit uint64, out io.Writer) (int, error) {
	most := (max(limit, spare) - spare) / uint64(each)
	switch {
	case most == 0:
		return 0, fmt.Errorf("limit on open files is %d: too low for a connection", limit)
	case most < uint64(n):
		fmt.Fprintf(out, "limit on open files is %d: opening %d connections, not %d\n", limit, most, n)
		return int(most), nil
	}
	return n, nil
}
