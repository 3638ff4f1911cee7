// Package busy gives tests more time on a busy machine.
package busy

import (
	"fmt"
	"os"
	"runtime"
	"time"
)

// Longer returns d, or more in proportion where more than three threads wait for each processor. A
// worker there cannot renew a short lease in time: it loses the lease again and again, and with it
// the work that it has done. Where the system does not say how many threads wait, Longer returns d.
func Longer(d time.Duration) time.Duration {
	var waiting float64 // in the minute before
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Sscan(string(text), &waiting)
	}
	return time.Duration(float64(d) * max(1, waiting/float64(3*runtime.NumCPU())))
}
