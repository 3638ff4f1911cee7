package jetstream

import (
	"context"

	"github.com/tickwheel/tickwheel/durable"
)

func (e *engine) Unhandled(context.Context) ([]durable.Unhandled, error) { return nil, nil }
