//go:build unix && !linux

package main

import (
	"errors"
	"fmt"
	"time"
)

func cutPower(bool, time.Duration) func(*world) { return cutPostgres() }

func cutPostgres(...string) func(*world) {
	return func(*world) { must(fmt.Errorf("%w: power cuts need Linux", errors.ErrUnsupported)) }
}
