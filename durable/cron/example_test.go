package cron_test

import (
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable/cron"
)

// In the night of March 29th, 2026, 02:30 is skipped in Berlin: the run comes after the gap.
func ExampleParse() {
	s, err := cron.Parse("CRON_TZ=Europe/Berlin 30 2 * * *")
	if err != nil {
		panic(err)
	}
	at := time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC)
	for range 3 {
		at = s.Next(at)
		fmt.Println(at.UTC().Format(time.RFC3339))
	}
	// Output:
	// 2026-03-28T01:30:00Z
	// 2026-03-29T01:00:00Z
	// 2026-03-30T00:30:00Z
}
