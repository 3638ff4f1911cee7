package postgres

import (
	"context"

	"github.com/tickwheel/tickwheel/durable"
)

func (e *Engine) Unhandled(context.Context) ([]durable.Unhandled, error) { return nil, nil }
