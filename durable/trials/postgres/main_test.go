package main

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/durable/internal/pgserver"
)

// Every section runs in little: each system stores its jobs, and runs all of them once.
func TestSections(t *testing.T) {
	err := run(t.Context(), []string{"insert", "overdue", "late", "vacuum"}, size{
		rounds: 1, insert: 50 * time.Millisecond, overdue: 2000, late: time.Second, rate: 100,
		near: 100 * time.Millisecond, far: 400 * time.Millisecond, flow: time.Second,
		pending: 1000, first: 100, most: 100, step: time.Second, hold: 2 * time.Second,
	})
	if errors.Is(err, pgserver.ErrMissing) && os.Getenv("TICKWHEEL_POSTGRES") != "required" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
