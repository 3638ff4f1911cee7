// Package clocks tests what adapters/README.md shows: the wheel as a clock that other
// libraries take. That page has the text of clockwork.go and k8s.go.
package clocks
