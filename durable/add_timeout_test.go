package durable_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// late is an engine whose Insert ends with the time that it has.
type late struct{ driver.Engine }

func (late) Insert(_ context.Context, recs []driver.Record) ([]driver.Ref, []error) {
	errs := make([]error, len(recs))
	for i := range errs {
		errs[i] = context.DeadlineExceeded
	}
	return make([]driver.Ref, len(recs)), errs
}

// An Add whose caller has set no deadline does not return one without a name.
func TestAddTimesOut(t *testing.T) {
	q, err := durable.Open(t.Context(), late{memory.New(nil).Open()})
	require.NoError(t, err)
	defer q.Close()
	for _, key := range []string{"", "k"} {
		_, err = q.Add(context.Background(), durable.Job{Kind: "k", Key: key})
		require.ErrorIs(t, err, durable.ErrUncertain)
	}
}
