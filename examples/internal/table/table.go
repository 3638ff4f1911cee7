// Package table prints how long things took, a line each, for examples.
package table

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// Heading prints the names of the columns.
func Heading(out io.Writer) {
	fmt.Fprintf(out, "\n%-30s %9s %9s %9s %9s\n", "", "min", "p50", "p99", "max")
}

// Row prints one line of the table, and sorts the times for it.
func Row(out io.Writer, name string, times []time.Duration) {
	if len(times) == 0 {
		fmt.Fprintf(out, "%-30s %9s\n", name, "none")
		return
	}
	slices.Sort(times)
	n := len(times)
	fmt.Fprintf(out, "%-30s %9v %9v %9v %9v\n", name,
		Short(times[0]), Short(times[n/2]), Short(times[n*99/100]), Short(times[n-1]))
}

// Short rounds d to three digits.
func Short(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d.Abs()/1000 >= unit { // 1000*unit could overflow
		unit *= 10
	}
	return d.Round(unit)
}
