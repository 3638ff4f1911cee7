package jetstream

import "time"

// Buckets sets the geometry of a stream that Connect makes, so that a test sees a day's
// turns within seconds.
func Buckets(near, far, lead, settle time.Duration) Option {
	return func(c *config) {
		c.geometry = geometry{
			near: near.Microseconds(), far: far.Microseconds(), lead: lead.Microseconds(), settle: settle.Microseconds(),
		}
	}
}
