package worker

import "github.com/tickwheel/tickwheel/durable/driver"

// Holds reports for each job whether the worker may have a claim of it: from before the claim is
// sent until its end or its release is stored. A nil Worker has none.
func (w *Worker) Holds(refs []driver.Ref) []bool { return holds(w, refs) }
