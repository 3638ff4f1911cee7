package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// caller is a transaction of the caller's, by whatever driver.
type caller interface {
	run(ctx context.Context, all ...asked) error
}

// asked is a statement, and what is done with each of its rows.
type asked struct {
	text string
	args []any
	row  func(scan func(dest ...any) error) error // nil: the rows say nothing
}

// one reads a row into these.
func one(dest ...any) func(scan func(dest ...any) error) error {
	return func(scan func(dest ...any) error) error { return scan(dest...) }
}

// pgxCaller takes one round trip for all.
type pgxCaller struct{ tx pgx.Tx }

func (c pgxCaller) run(ctx context.Context, all ...asked) error {
	b := &pgx.Batch{}
	for _, a := range all {
		q := b.Queue(a.text, a.args...)
		if a.row == nil {
			continue
		}
		q.Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := a.row(rows.Scan); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
	return c.tx.SendBatch(ctx, b).Close()
}

// sqlCaller asks one after another. Drivers of database/sql have arrays in ways of their
// own or not at all, but all pass text on as it is, and the statements say of what type it
// is: so arrays are written as text.
type sqlCaller struct{ tx *sql.Tx }

func (c sqlCaller) run(ctx context.Context, all ...asked) error {
	for _, a := range all {
		if err := c.runOne(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func (c sqlCaller) runOne(ctx context.Context, a asked) error {
	args := make([]any, len(a.args))
	for i, arg := range a.args {
		args[i] = asText(arg)
	}
	rows, err := c.tx.QueryContext(ctx, a.text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if a.row == nil {
			continue
		}
		if err := a.row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// asText writes an array as the server reads it, and leaves all else as it is.
func asText(arg any) any {
	switch all := arg.(type) {
	case []string:
		return array(all, quoted)
	case pgtype.FlatArray[[]byte]:
		return array(all, func(b []byte) string { return quoted(`\x` + hex.EncodeToString(b)) })
	case []time.Time:
		return array(all, timeText)
	case []*string:
		return array(all, func(s *string) string {
			if s == nil {
				return "null"
			}
			return quoted(*s)
		})
	case []int16:
		return array(all, intText)
	case []int32:
		return array(all, intText)
	case []int64:
		return array(all, intText)
	case []bool:
		return array(all, strconv.FormatBool)
	case *time.Time:
		if all == nil {
			return nil
		}
		return *all
	case string, []byte, int16, int32, int64, time.Time:
		return arg
	}
	panic(fmt.Sprintf("postgres: a %T is no argument of any statement", arg))
}

func array[T any](all []T, text func(T) string) string {
	elements := make([]string, len(all))
	for i, v := range all {
		elements[i] = text(v)
	}
	return "{" + strings.Join(elements, ",") + "}"
}

var quotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quoted(s string) string { return `"` + quotes.Replace(s) + `"` }

func timeText(t time.Time) string { return quoted(t.UTC().Format(time.RFC3339Nano)) }

func intText[T int16 | int32 | int64](n T) string { return strconv.FormatInt(int64(n), 10) }
