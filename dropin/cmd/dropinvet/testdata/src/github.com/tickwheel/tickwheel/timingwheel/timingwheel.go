// Package timingwheel has the signatures that the analyzer looks at.
package timingwheel

import (
	"context"
	"time"
)

type TimingWheel struct{}

type Timer struct{ C <-chan time.Time }

func (*Timer) Stop() bool               { return false }
func (*Timer) Reset(time.Duration) bool { return false }

type Ticker struct{ C <-chan time.Time }

func (*Ticker) Stop() {}

func (*TimingWheel) NewTimer(time.Duration) *Timer          { return nil }
func (*TimingWheel) NewTicker(time.Duration) *Ticker        { return nil }
func (*TimingWheel) After(time.Duration) <-chan time.Time   { return nil }
func (*TimingWheel) AfterFunc(time.Duration, func()) *Timer { return nil }
func (*TimingWheel) WithTimeout(context.Context, time.Duration) (context.Context, context.CancelFunc) {
	return nil, nil
}
