package context_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/dropin/context"
)

// The code is that for package context, and so are the errors. The deadline is on the wheel of the
// process.
func ExampleWithTimeout() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	fmt.Println(errors.Is(ctx.Err(), context.DeadlineExceeded))
	// Output: true
}
