package durable

import "context"

// Counts has the numbers of jobs that an engine keeps, for all processes.
type Counts struct {
	Waiting, Running, Dead int64
}

// Count counts the jobs that are kept. If it fails, also because ctx has ended, it
// returns the counts so far with the error. It goes over all jobs as [Queue.All] does and
// costs as much: the engine reads every record once, some 30,000 a second of the embedded
// engine. Use [Queue.Stats] for frequent calls.
func (q *Queue) Count(ctx context.Context) (Counts, error) {
	var c Counts
	for info, err := range q.All(ctx, Filter{}) {
		if err != nil {
			return c, err
		}
		switch info.State {
		case Waiting:
			c.Waiting++
		case Running:
			c.Running++
		case Dead:
			c.Dead++
		}
	}
	return c, nil
}
