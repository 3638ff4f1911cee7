package time_test

import (
	"fmt"

	"github.com/tickwheel/tickwheel/dropin/time"
)

// The code is that for package time. The timer is on the wheel of the process.
func ExampleAfterFunc() {
	done := make(chan string)
	timer := time.AfterFunc(time.Hour, func() { done <- "late" })
	time.AfterFunc(5*time.Millisecond, func() { done <- "in time" })
	fmt.Println(<-done, timer.Stop())
	// Output: in time true
}

// The answer comes first, so the timer is stopped: the wheel would hold it for a minute.
func ExampleNewTimer() {
	answer := make(chan int, 1)
	answer <- 42
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	select {
	case n := <-answer:
		fmt.Println(n)
	case <-timer.C:
		fmt.Println("no answer")
	}
	// Output: 42
}
