// Command dropinvet is a tool for go vet. It reports mistakes that go vet no longer sees, or that
// matter only, once timers and contexts are on a timing wheel:
//
//	go install github.com/tickwheel/tickwheel/dropin/cmd/dropinvet@v0.1.0
//	go vet -vettool=$(which dropinvet) ./...
//
// It replaces the checks of go vet, so run go vet without it, too.
//
// It reports
//
//   - a CancelFunc of dropin/context, or of a method of TimingWheel, that is dropped: it is
//     assigned to the blank identifier, or a path to a return of the function does not use it. The
//     check lostcancel of go vet does so for package context, which it knows by its path.
//   - a Ticker or Timer of a wheel in a variable that the function only receives from. Package time
//     collects one that nobody refers to; a wheel holds a Ticker for ever, and a Timer until it fires.
//   - After of a wheel in a select in a loop, which leaves a timer on the wheel each time that another
//     case is ready.
//   - an assignment to Local or UTC of dropin/time, which are copies.
//
// The exit status is that of go vet. A report may be a false alarm, and a mistake may go
// unreported: for example, a CancelFunc that is passed on counts as used.
package main

import (
	"os"

	"golang.org/x/tools/go/analysis/unitchecker"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "-h" {
		os.Args[1] = "help" // -h would end with the status of an error
	}
	unitchecker.Main(analyzer)
}
