//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// schedules measures what the server has of itself: messages with a schedule, which it
// publishes to another subject when their time has come. They are consumed and
// acknowledged; there are no claims, attempts or leases, so it is less than a job's life.
func schedules() error {
	dir, err := os.MkdirTemp(os.Getenv("BENCH_DIR"), "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	srv, err := server.NewServer(&server.Options{
		ServerName: "bench", DontListen: true, NoSigs: true, NoLog: true, NoSystemAccount: true, JetStream: true,
		StoreDir: dir, SyncAlways: true, JetStreamMaxStore: 8 << 30, JetStreamMaxMemory: 1 << 30,
	})
	if err != nil {
		return err
	}
	srv.Start()
	defer srv.Shutdown()
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(10000))
	if err != nil {
		return err
	}
	ctx := context.Background()
	if _, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>", "d.>"}, AllowMsgSchedules: true, AllowMsgTTL: true}); err != nil {
		return err
	}
	for _, rate := range []int{200, 1000} {
		if err := scheduleLife(ctx, js, rate); err != nil {
			return err
		}
	}
	return nil
}

func scheduleLife(ctx context.Context, js jetstream.JetStream, rate int) error {
	cons, err := js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{FilterSubject: "d.>", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1, DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var late []time.Duration
	consuming, err := cons.Consume(func(m jetstream.Msg) {
		due, err := strconv.ParseInt(string(m.Data()), 10, 64)
		if err == nil {
			mu.Lock()
			late = append(late, time.Since(time.Unix(0, due)))
			mu.Unlock()
		}
		m.Ack()
	})
	if err != nil {
		return err
	}
	defer consuming.Stop()
	before, began, added := cpu(), time.Now(), 0
	for time.Since(began) < *length {
		for due := int(time.Since(began).Seconds() * float64(rate)); added < due; added++ {
			// The server's schedules have whole seconds.
			at := time.Now().Add(time.Second + rand.N(2*time.Second)).Truncate(time.Second).Add(time.Second)
			m := nats.NewMsg(fmt.Sprintf("s.%d.%d", rate, added))
			m.Data = strconv.AppendInt(nil, at.UnixNano(), 10)
			m.Header.Set("Nats-Schedule", "@at "+at.UTC().Format(time.RFC3339))
			m.Header.Set("Nats-Schedule-Target", fmt.Sprintf("d.%d.%d", rate, added))
			if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(10*time.Second)); err != nil {
				return err
			}
		}
		time.Sleep(time.Millisecond)
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(late) }
	for end := time.Now().Add(time.Minute); count() < added && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	used := cpu() - before
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(late)
	if len(late) == 0 {
		return fmt.Errorf("of %d schedules none has come", added)
	}
	fmt.Printf("JetStream's own schedules at %4d/s: %d added, %d came; late by p50 %s, p99 %s, max %s; %v of CPU each\n", rate, added, len(late),
		ms(late[len(late)/2]), ms(late[len(late)*99/100]), ms(late[len(late)-1]), (used / time.Duration(max(added, 1))).Round(time.Microsecond))
	return nil
}
