package durable

import (
	"fmt"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/valid"
)

// checkKind panics on a kind that no job can have. An engine would refuse it later, and end Run.
func checkKind(function, kind string) {
	if kind == "" {
		panic(fmt.Sprintf("durable: %s: empty kind", function))
	}
	if err := valid.Name("the kind", kind, driver.MaxKind); err != nil {
		panic(fmt.Sprintf("durable: %s(%.200q): %v", function, kind, err))
	}
}
