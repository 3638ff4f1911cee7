package main

import (
	"fmt"
	"sync"
)

// keepViolations is how many violations are kept in words. The others are only counted,
// since one fault can break a promise very often.
const keepViolations = 20

// violations are the promises that were found broken.
type violations struct {
	mu    sync.Mutex
	count int      // guarded by mu
	first []string // guarded by mu; at most keepViolations
}

func (v *violations) add(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.count++
	if len(v.first) < keepViolations {
		v.first = append(v.first, fmt.Sprintf(format, args...))
	}
}

func (v *violations) get() (count int, first []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.count, v.first
}
