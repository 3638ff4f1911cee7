package durable_test

import (
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// A job with a Retain is kept after its end, and is gone when that time is over.
func ExampleInfo_Ended() {
	q, clock := open()
	defer q.Close()
	ref, err := q.Add(ctx, durable.Job{Kind: "mail", After: time.Hour, Retain: 24 * time.Hour})
	check(err)
	_, err = q.Cancel(ctx, ref)
	check(err)
	info, err := q.Get(ctx, ref)
	check(err)
	fmt.Println(info.State, info.Ended())
	clock.Set(clock.Now().Add(25 * time.Hour))
	_, err = q.Get(ctx, ref)
	fmt.Println(err == durable.ErrNotFound)
	// Output:
	// canceled true
	// true
}
