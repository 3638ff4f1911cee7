package workqueue

import "k8s.io/utils/clock"

type TypedDelayingQueueConfig[T comparable] struct{ Clock clock.WithTicker }

func NewTypedDelayingQueueWithConfig[T comparable](config TypedDelayingQueueConfig[T]) any {
	return nil
}
