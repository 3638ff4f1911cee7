// Package context has the signatures that the analyzer looks at.
package context

import (
	"context"
	"time"
)

type (
	Context         = context.Context
	CancelFunc      = context.CancelFunc
	CancelCauseFunc = context.CancelCauseFunc
)

func Background() Context                                      { return nil }
func WithCancel(Context) (Context, CancelFunc)                 { return nil, nil }
func WithCancelCause(Context) (Context, CancelCauseFunc)       { return nil, nil }
func WithDeadline(Context, time.Time) (Context, CancelFunc)    { return nil, nil }
func WithTimeout(Context, time.Duration) (Context, CancelFunc) { return nil, nil }
