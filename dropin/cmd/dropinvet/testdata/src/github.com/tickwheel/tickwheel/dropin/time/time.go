// Package time has the signatures that the analyzer looks at.
package time

import (
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

const Second = time.Second

var Local, UTC = time.Local, time.UTC

func NewTimer(time.Duration) *timingwheel.Timer { return nil }
func NewTicker(time.Duration) *time.Ticker      { return nil }
func After(time.Duration) <-chan time.Time      { return nil }
