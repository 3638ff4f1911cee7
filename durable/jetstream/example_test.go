package jetstream_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// The queue is on a cluster of NATS servers, as three replicas. Any number of processes may
// run this program.
func ExampleConnect() {
	ctx := context.Background()
	nc, err := nats.Connect("nats://localhost", nats.MaxReconnects(-1), nats.Timeout(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	engine, err := jetstream.Connect(ctx, nc, jetstream.WithQueue("mails"), jetstream.WithReplicas(3))
	if err != nil {
		log.Fatal(err)
	}
	q, err := durable.Open(ctx, engine)
	if err != nil {
		log.Fatal(err)
	}
	q.Handle("mail", func(_ context.Context, a *durable.Attempt) error {
		fmt.Printf("mail: %s\n", a.Job.Payload)
		return nil
	})
	if _, err := q.Add(ctx, durable.Job{Kind: "mail", After: time.Minute, Payload: []byte("hello")}); err != nil {
		log.Fatal(err)
	}
	log.Print(q.Run(ctx))
}
