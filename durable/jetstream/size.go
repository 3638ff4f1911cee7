package jetstream

import (
	"context"
	"fmt"
	"strings"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A server takes no message, headers and all, that is larger than its max_payload, and the client
// refuses to send one. So a job that does not fit is refused by itself, and not with all that it
// shares a commit with. One that was accepted always fits: what grows in it is cut.
const (
	leastMaxPayload = 16 << 10 // heartbeats, statuses and permits fit
	headersSize     = 320      // of a message, without its guard
	growth          = 1 << 10  // is free when a job is added: for its version, its attempts, a line of its error
)

// tooLarge returns an error that wraps durable.ErrInvalid if a message is larger than most.
func tooLarge(what string, size, most int) error {
	if size <= most {
		return nil
	}
	return fmt.Errorf("%w: %s has %d bytes as it is stored, more than the server's max_payload allows, %d", driver.ErrInvalid, what, size, most)
}

// checkSize returns an error if a message of a group is too large.
func (s *stream) checkSize(g group) error {
	most := s.nc.maxPayload()
	for i := range g {
		if size := len(g[i].data) + len(g[i].guard) + headersSize; size > most {
			return tooLarge("a message of "+g[i].subject, size, most)
		}
	}
	return nil
}

// commitFitting commits those groups that are not too large.
func (s *stream) commitFitting(ctx context.Context, groups []group) []result {
	results, fit := make([]result, len(groups)), []int(nil)
	for i, g := range groups {
		if results[i].err = s.checkSize(g); results[i].err == nil {
			fit = append(fit, i)
		}
	}
	for k, res := range s.commit(ctx, pick(groups, fit)) {
		results[fit[k]] = res
	}
	return results
}

// mostHead is more than a record has beside its payload and its occurrence, as JSON, which may need
// six bytes for one.
const mostHead = 6*(driver.MaxKind+driver.MaxKey+driver.MaxLane+driver.MaxMeta) + growth

// checkRecord returns an error if a record is too large to be added.
func (p *part) checkRecord(r *driver.Record) error {
	most := p.mostRecord()
	if len(r.Payload)+6*len(r.Occurrence)+mostHead <= most {
		return nil
	}
	return tooLarge("the job", len(encode(r, nil)), most)
}

// mostRecord is how large a record may be that is added.
func (p *part) mostRecord() int { return p.nc.maxPayload() - 2*headersSize - growth }

// encodeFitting is encode, of a record that has been tried. If it grew too large, the errors of its
// attempts are cut, the oldest first.
func (p *part) encodeFitting(r *driver.Record, was []byte) []byte {
	data := encode(r, was)
	if most := p.mostRecord() + growth/2; len(data) > most {
		fitting := *r
		for len(data) > most && cutErrors(&fitting) {
			data = encode(&fitting, was)
		}
	}
	return data
}

// cutErrors makes a record smaller, and reports whether it could.
func cutErrors(r *driver.Record) bool {
	switch n := len(r.Errors); {
	case n > 1:
		r.Errors = r.Errors[n-n/2:]
	case n == 1 && r.Errors[0].Error != "":
		last := r.Errors[0]
		last.Error = half(last.Error)
		r.Errors, r.LastError = []driver.Failure{last}, half(r.LastError)
	case r.LastError != "":
		r.LastError = half(r.LastError)
	case n == 1:
		r.Errors = nil
	default:
		return false
	}
	return true
}

func half(s string) string { return strings.ToValidUTF8(s[:len(s)/2], "") }
