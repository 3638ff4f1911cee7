//go:build !race

package purgatory

const million = 1_000_000
