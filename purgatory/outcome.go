package purgatory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Outcome is how an operation has ended.
type Outcome uint8

const (
	Pending   Outcome = iota // It has not ended.
	Satisfied                // Its condition held.
	Expired                  // Its deadline came first.
	Canceled                 // Ended by Cancel or CancelKey, or by the end of Wait's context.
	Closed                   // Ended by Close, or because the wheel was stopped.
)

var outcomeNames = [...]string{"Pending", "Satisfied", "Expired", "Canceled", "Closed"}

// String returns the name of the constant.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "Outcome(" + strconv.Itoa(int(o)) + ")"
}

// Errors of Wait and Await. ErrClosed is also that of Park after Close.
var (
	// ErrExpired wraps context.DeadlineExceeded.
	ErrExpired = fmt.Errorf("purgatory: expired: %w", context.DeadlineExceeded)

	// ErrCanceled does not wrap context.Canceled, so that a waiter can tell a call of
	// CancelKey from the end of its own context.
	ErrCanceled = errors.New("purgatory: canceled")

	ErrClosed = errors.New("purgatory: closed")
)

// err returns the error of Wait for an outcome.
func (o Outcome) err() error {
	switch o {
	case Expired:
		return ErrExpired
	case Canceled:
		return ErrCanceled
	case Closed:
		return ErrClosed
	}
	return nil
}
