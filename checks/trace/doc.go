// Package trace reads an execution trace of a wheel, with a reader that the core module
// does not depend on.
package trace
