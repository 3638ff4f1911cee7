package debug

import (
	"fmt"
	"io"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// namedPool is a pool with its name. Its figures are cheap, so there are no samples of it.
type namedPool struct {
	name string
	pool *pool.Pool
}

func (p *namedPool) label() string { return p.name }

// poolFigures is what a pool does at one moment.
type poolFigures struct {
	Name  string     `json:"name"`
	Stats pool.Stats `json:"stats"`
}

// figuresOf asks each of the pools. It returns no nil, which JSON would not write as a
// list.
func figuresOf(pools []*namedPool) []poolFigures {
	all := make([]poolFigures, 0, len(pools))
	for _, p := range pools {
		all = append(all, poolFigures{p.name, p.pool.Stats()})
	}
	return all
}

// writePool writes a line for a reader at a terminal, with the name quoted as that of a
// wheel is.
func writePool(out io.Writer, p poolFigures) {
	s := p.Stats
	fmt.Fprintf(out, "pool %q: %d of %d workers busy, %d of %d queued, %d waiting on wheels",
		p.Name, s.Running, s.Workers, s.Queued, s.Queue, s.Waiting)
	if s.Closed {
		fmt.Fprint(out, ", closed")
	}
	fmt.Fprintln(out)
}
