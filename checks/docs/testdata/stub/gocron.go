package gocron

import "github.com/jonboulle/clockwork"

type (
	Scheduler       interface{}
	SchedulerOption func()
)

func WithClock(clock clockwork.Clock) SchedulerOption            { return nil }
func NewScheduler(options ...SchedulerOption) (Scheduler, error) { return nil, nil }
