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
// time zone, which else is UTC. If an expression is bad, the exit status is 2 and nothing runs. Ctrl-C ends
// it early, with status 130 (go run itself turns that into 1).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
	_ "time/tzdata" // for machines without a time zone database
)

var sample = []string{
	"* * * * * *",
	"@every 2s",
	"*/5 * * * *",
	"30 3 * * 1-5",
	"CRON_TZ=Europe/Berlin 0 8 * * *",
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("cron", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: cron [-for DURATION] [-next N] [EXPRESSION]...")
		flags.PrintDefaults()
	}
	period := flags.Duration("for", 5*time.Second, "how long to run")
	next := flags.Int("next", 3, "how many times of each expression to print")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	expressions := flags.Args()
	if len(expressions) == 0 {
		expressions = sample
	}

	table := newCrontab(stdout)
	bad := false
	for _, expression := range expressions {
		if err := table.add(expression); err != nil {
			fmt.Fprintf(stderr, "cron: bad expression %q: %v\n", expression, err)
			bad = true
		}
	}
	if bad {
		return 2
	}

	table.preview(time.Now(), *next)
	if err := table.start(); err != nil {
		fmt.Fprintln(stderr, "cron:", err)
		return 1
	}
	status := 0
	select {
	case <-table.wheel.After(*period):
	case <-ctx.Done():
		status = 130
	}
	table.stop()
	table.summary()
	return status
}
