package embedded_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
)

// A job is added, the process ends, and the next one that opens the directory runs the job.
func Example() {
	dir, err := os.MkdirTemp("", "")
	check(err)
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(context.Background())

	q := openQueue(ctx, dir)
	_, err = q.Add(ctx, durable.Job{Kind: "remind", Payload: []byte("pay the bill")})
	check(err)
	check(q.Close())

	q = openQueue(ctx, dir)
	defer q.Close()
	q.Handle("remind", func(_ context.Context, a *durable.Attempt) error {
		fmt.Printf("%s\n", a.Job.Payload)
		stop()
		return nil
	})
	check(q.Run(ctx))
	// Output: pay the bill
}

func openQueue(ctx context.Context, dir string) *durable.Queue {
	engine, err := embedded.Open(ctx, dir)
	check(err)
	q, err := durable.Open(ctx, engine, durable.WithLogger(slog.New(slog.DiscardHandler)))
	check(err)
	return q
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
