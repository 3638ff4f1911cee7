//go:build race

package purgatory

// million is a tenth of it under the race detector, which takes ten times as long.
const million = 100_000
