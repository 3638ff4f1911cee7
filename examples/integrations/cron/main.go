// Cron runs cron expressions on a timing wheel. Package durable/cron turns them into
// schedules, and the wheel takes these as they are.
//
//	go run ./examples/integrations/cron                                # a sample that is built in
//	go run ./examples/integrations/cron -for 1m '*/20 * * * * *' '30 3 * * 1-5'
//	go run ./examples/integrations/cron 'CRON_TZ=Asia/Tokyo 0 9 * * *'
//
// It prints the next times of each expression, then each run that comes due within the
// time given by -for, and a summary. An expression has five fields, or six with seconds
// in front, or is a descriptor such as @daily or @every 90s. CRON_TZ= in front sets its
// time zone, which else is UTC. If an expression is bad, nothing runs. Ctrl-C ends it early.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"
	_ "time/tzdata" // for machines without a time zone database

	"github.com/tickwheel/tickwheel/examples/internal/program"
)

var (
	period = flag.Duration("for", 5*time.Second, "how long to run")
	next   = flag.Int("next", 3, "how many times of each expression to print")
)

var sample = []string{
	"* * * * * *",
	"@every 2s",
	"*/5 * * * *",
	"30 3 * * 1-5",
	"CRON_TZ=Europe/Berlin 0 8 * * *",
}

func main() {
	program.Main(func(ctx context.Context, out io.Writer) error { return run(ctx, out, flag.Args()) })
}

func run(ctx context.Context, out io.Writer, expressions []string) error {
	if len(expressions) == 0 {
		expressions = sample
	}
	table := newCrontab(out)
	var bad []error
	for _, expression := range expressions {
		if err := table.add(expression); err != nil {
			bad = append(bad, fmt.Errorf("bad expression %q: %w", expression, err))
		}
	}
	if len(bad) > 0 {
		return errors.Join(bad...)
	}
	table.preview(time.Now(), *next)
	if err := table.start(); err != nil {
		return err
	}
	select {
	case <-table.wheel.After(*period):
	case <-ctx.Done():
	}
	table.stop()
	table.summary()
	return ctx.Err()
}
