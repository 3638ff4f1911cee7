package main

import (
	"fmt"
	"slices"
	"strings"
)

// table is one in markdown, with a column for each system.
type table struct{ lines [][]string }

func newTable(title string, systems []system) *table {
	head, rule := []string{title}, []string{"---"}
	for _, s := range systems {
		head, rule = append(head, s.name), append(rule, "---")
	}
	return &table{lines: [][]string{head, rule}}
}

func (t *table) row(title string, cells []string) {
	t.lines = append(t.lines, append([]string{title}, cells...))
}

func (t *table) print() {
	fmt.Println()
	for _, l := range t.lines {
		fmt.Println("| " + strings.Join(l, " | ") + " |")
	}
}

// samples has what was measured of each system, in the order of systems.
type samples struct {
	names []string
	of    map[string][]float64
}

func newSamples() *samples { return &samples{of: map[string][]float64{}} }

func (s *samples) add(name string, x float64) {
	if !slices.Contains(s.names, name) {
		s.names = append(s.names, name)
	}
	s.of[name] = append(s.of[name], x)
}

// medians formats the median of each system.
func (s *samples) medians(format string) (cells []string) {
	for _, name := range s.names {
		x := slices.Sorted(slices.Values(s.of[name]))
		cells = append(cells, fmt.Sprintf(format, x[len(x)/2]))
	}
	return cells
}
