package main

import (
	"context"

	"github.com/tickwheel/tickwheel/durable"
)

func addAll(q *durable.Queue, jobs []durable.Job) error {
	_, err := q.Add(context.Background(), jobs...)
	return err
}
