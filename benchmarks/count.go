package main

import (
	"fmt"
	"strconv"
	"strings"
)

// count writes a number as in the names of benchmarks: 10k, 1M.
func count(n int) string {
	for _, u := range []struct {
		n int
		s string
	}{{1_000_000, "M"}, {1000, "k"}} {
		if n >= u.n && n%u.n == 0 {
			return strconv.Itoa(n/u.n) + u.s
		}
	}
	return strconv.Itoa(n)
}

// parseCount reads what count writes.
func parseCount(s string) (int, error) {
	digits := strings.TrimRight(s, "kM")
	n, err := strconv.Atoi(digits)
	if err != nil || len(s) > len(digits)+1 {
		return 0, fmt.Errorf("%q is no number such as 100k or 10M", s)
	}
	return n * map[string]int{"": 1, "k": 1000, "M": 1_000_000}[s[len(digits):]], nil
}
