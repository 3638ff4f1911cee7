package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/held"
)

// outcome is what an error says about what was asked for.
type outcome int

const (
	permanent outcome = iota // it was not done, and trying again is of no use
	undone                   // it was certainly not done, and may succeed soon
	lost                     // the answer was lost: it may have been done
)

// notSentError is that of a statement for which there was no connection.
type notSentError struct{ error }

func (e *notSentError) Unwrap() error { return e.error }

// errLocked is that of a row which another transaction has locked, and was left out.
var errLocked = fmt.Errorf("%w, which has locked the job's row", held.Err)

// judge tells what an error means. It does not go by pgconn.SafeToRetry: where a connection
// breaks while the answer to a batch is read, pgx 5.12 returns in some modes an error that
// says the connection was closed before, as if nothing had been sent.
func judge(err error) outcome {
	var pg *pgconn.PgError
	switch {
	case errors.As(err, new(*notSentError)), errors.Is(err, errLocked):
		return undone
	case errors.Is(err, held.Err), errors.Is(err, driver.ErrClosed), errors.Is(err, driver.ErrExists), errors.Is(err, driver.ErrInvalid), errors.Is(err, ErrVersion), errors.Is(err, driver.ErrChanged), errors.As(err, new(pgx.ScanArgError)):
		return permanent
	case errors.As(err, &pg):
		return judgeCode(pg)
	case errors.As(err, new(pgx.ErrPreprocessingBatch)):
		// Statements are prepared in a round trip of their own before anything is run.
		return undone
	}
	return lost
}

// judgeCode tells what an error of the server means. An error that ends the connection may come
// after the commit; any other error has undone the transaction.
func judgeCode(pg *pgconn.PgError) outcome {
	switch {
	case isLast(pg), strings.HasPrefix(pg.Code, "08"):
		return lost
	case strings.HasPrefix(pg.Code, "40"), // serialization, deadlock
		strings.HasPrefix(pg.Code, "53"), // out of connections, memory, disk
		strings.HasPrefix(pg.Code, "57"), // statement timeout, start, shutdown
		pg.Code == lockTimeout,           // of the table's lock, or by a setting of the role's
		pg.Code == readOnly:              // a standby that is to be a primary soon
		return undone
	}
	return permanent
}

// readOnly is the code of a server that takes no writes, as a whole or of this role.
const readOnly = "25006"

// readOnlyPatience is for how long a call that writes is repeated where the server takes no writes: about
// as long as a standby takes to become the primary. Longer would keep callers from the reason.
const readOnlyPatience = time.Second

// refusesOne reports whether an error that has undone a commit may be that of one of its rows: what a
// trigger or a policy of the user's raises. One about tables and columns is that of all.
func refusesOne(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && judgeCode(pg) == permanent && (!strings.HasPrefix(pg.Code, "42") || pg.Code == "42501")
}

// concernsOne reports whether an error that has undone a commit may be that of one of its rows: it is
// refused, or another's transaction holds its key.
func concernsOne(err error) bool { return errors.Is(err, held.Err) || refusesOne(err) }

// halves calls do with each half of the items of a commit that one of them has undone.
func halves[T, R any](items []T, do func([]T) []R) []R {
	n := len(items) / 2
	return slices.Concat(do(items[:n]), do(items[n:]))
}

// isLast reports whether an error is the last that comes of its connection. The server says
// FATAL in its language, and once more in English; poolers say it in English alone.
func isLast(pg *pgconn.PgError) bool {
	for _, s := range []string{pg.SeverityUnlocalized, pg.Severity} {
		if s == "FATAL" || s == "PANIC" {
			return true
		}
	}
	return false
}

// translate gives a server's error the name that durable has for it.
func (d *db) translate(err error) error {
	var of interface{ SQLState() string } // of any driver
	if !errors.As(err, &of) {
		return err
	}
	switch code := of.SQLState(); {
	case code == "53100":
		return fmt.Errorf("%w: %w", driver.ErrFull, err)
	case code == "42P01" || code == "3F000" || code == "42703" || code == "42883": // a table, schema, column or function
		ctx, cancel := context.WithTimeout(d.closed, watchEvery)
		defer cancel()
		if err := d.checkVersion(ctx); err != nil {
			return err
		}
		return fmt.Errorf("postgres: the schema %q has no tables, or older ones: call Migrate: %w", d.schema, err)
	case code == readOnly:
		return fmt.Errorf("%w: %w", driver.ErrReadOnly, err)
	case strings.HasPrefix(code, "58") || strings.HasPrefix(code, "XX"):
		return fmt.Errorf("%w: %w", driver.ErrStorage, err)
	}
	return err
}

// retry calls try until it succeeds, and returns the answer of that call; or until ctx
// ends, or trying again is of no use: then it returns the error. If try may be repeated
// after its answer was lost, it is; an error that it returns after that is ErrUncertain,
// whatever ends the tries. An answer comes from one try alone: try returns it, and leaves
// nothing anywhere for the next one to find.
func retry[T any](ctx context.Context, d *db, repeatable bool, try func() (T, error)) (T, error) {
	uncertain := false    // a try may have done it
	var refused time.Time // when the server said for the first time that it takes no writes
	answer, err := retryUntil(ctx, d, func() (answer T, end bool, err error) {
		answer, err = try()
		if err == nil {
			return answer, true, nil
		}
		what := judge(err)
		uncertain = uncertain || what == lost
		err = d.translate(err)
		end = what == permanent || what == lost && !repeatable || errors.Is(err, driver.ErrFull)
		if errors.Is(err, driver.ErrReadOnly) {
			if refused.IsZero() {
				refused = time.Now()
			}
			end = end || time.Since(refused) > readOnlyPatience
		}
		return answer, end, err
	})
	if err != nil && uncertain && !errors.Is(err, driver.ErrUncertain) {
		err = fmt.Errorf("%w: %w", driver.ErrUncertain, err)
	}
	return answer, err
}

// retryUntil calls try with pauses until it says that this is the end, or ctx or d ends.
func retryUntil[T any](ctx context.Context, d *db, try func() (answer T, end bool, err error)) (T, error) {
	var none T
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		answer, end, err := try()
		if err == nil {
			return answer, nil
		}
		if end {
			return none, err
		}
		t := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-t.C:
		case <-d.closed.Done():
			t.Stop()
			return none, driver.ErrClosed
		case <-ctx.Done():
			t.Stop()
			return none, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
