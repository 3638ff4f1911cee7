// Serve runs a PostgreSQL server for as long as its standard input is open, and prints
// its address: for tests of other modules, and to try something by hand.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := pgserver.New()
	if err != nil {
		return err
	}
	fmt.Println(s.DSN())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	<-ctx.Done()
	return s.Stop()
}
