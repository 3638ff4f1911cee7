package stream

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/durable/driver"
)

func TestErrorsOfTheServer(t *testing.T) {
	for code, want := range map[int]error{
		10071: ErrConflict, 10164: ErrBusy, 10210: ErrBusy, 10023: driver.ErrFull, 10047: driver.ErrFull, 10037: driver.ErrNotFound,
	} {
		require.ErrorIs(t, (&apiError{ErrCode: code}).err(), want)
	}
	require.ErrorIs(t, (&apiError{ErrCode: 10077, Description: "maximum bytes exceeded"}).err(), driver.ErrFull)
	require.ErrorIs(t, (&apiError{ErrCode: 10077, Description: "write: no space left on device"}).err(), driver.ErrFull)
	require.ErrorIs(t, (&apiError{ErrCode: 10077, Description: "checksum"}).err(), driver.ErrStorage)
	other := &apiError{ErrCode: 1}
	require.True(t, errors.Is(other.err(), other))
	require.NoError(t, (*apiError)(nil).err())
}

// Only what a server may say, or not say, while it starts is worth another try.
func TestRefusals(t *testing.T) {
	for _, err := range []error{
		&apiError{ErrCode: 10023}, &apiError{ErrCode: 10074}, &apiError{ErrCode: 10076}, errors.New("differs"),
		driver.ErrStorage, nats.ErrConnectionClosed, driver.ErrClosed, errors.New("what was there cannot be read"),
	} {
		require.True(t, IsRefusal(fmt.Errorf("stream: %w", err)), "%v", err)
	}
	for _, err := range []error{
		context.DeadlineExceeded, nats.ErrNoResponders, nats.ErrTimeout, &apiError{ErrCode: 10008},
		&apiError{ErrCode: CodeNoStream}, driver.ErrUncertain,
	} {
		require.False(t, IsRefusal(fmt.Errorf("stream: %w", err)), "%v", err)
	}
}
