// Package program is the main function of examples.
package program

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

// Main parses the flags and calls run, whose ctx ends with Ctrl-C; a second Ctrl-C kills. The
// exit status is 1 if run returns an error, as one does that Ctrl-C keeps from its end.
func Main(run func(ctx context.Context, out io.Writer) error) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
