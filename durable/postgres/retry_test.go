package postgres

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// Once an answer was lost nobody knows whether it was done, whatever ends the tries.
func TestLostAnswerStaysUncertain(t *testing.T) {
	t.Parallel()
	lostAnswer, noConnection := error(io.ErrUnexpectedEOF), error(&notSentError{io.EOF})
	for name, test := range map[string]struct {
		errs    []error // of the tries, the last one again and again
		close   bool    // the engine is closed in the last of them; else the context ends
		certain bool
	}{
		"lost, closed":                {errs: []error{lostAnswer}, close: true},
		"lost, no connection":         {errs: []error{lostAnswer, noConnection}},
		"lost, no connection, closed": {errs: []error{lostAnswer, noConnection}, close: true},
		"lost, full":                  {errs: []error{lostAnswer, &pgconn.PgError{Code: "53100"}}},
		"lost, refused":               {errs: []error{lostAnswer, &pgconn.PgError{Code: "42501"}}},
		"no connection":               {errs: []error{noConnection}, certain: true},
		"no connection, closed":       {errs: []error{noConnection}, close: true, certain: true},
		"in English":                  {errs: []error{&pgconn.PgError{Code: "57P01", Severity: "FATAL"}}},
		"in another language":         {errs: []error{&pgconn.PgError{Code: "57P01", Severity: "FATALNY", SeverityUnlocalized: "FATAL"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			closed, closeEngine := context.WithCancel(t.Context())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			tries := 0
			_, err := retry(ctx, &db{closed: closed}, true, func() (int, error) {
				err := test.errs[min(tries, len(test.errs)-1)]
				if tries++; tries == len(test.errs) && test.close {
					closeEngine()
				} else if tries == len(test.errs) {
					cancel()
				}
				return 0, err
			})
			closeEngine()
			require.Error(t, err)
			require.Equal(t, test.certain, !errors.Is(err, durable.ErrUncertain), err)
		})
	}
}
