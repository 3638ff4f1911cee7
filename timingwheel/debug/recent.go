package debug

import (
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// A wheel counts lateness since its start only, so one hiccup at the start stays in its
// quantiles for ever. The difference of two samples shows what was late between them.

const (
	recentSpan = time.Minute
	recentStep = 5 * time.Second // between two marks; so a span is one minute to 65 s
)

// recent is what was late between two samples, the later of which is the latest one.
type recent struct {
	Span     time.Duration         `json:"span"` // between the samples; zero if there was only one
	Lateness timingwheel.Histogram `json:"lateness"`
}

// history has the lateness at some samples of the last minute. It has at most 14 marks,
// of less than 300 bytes each.
type history struct {
	marks []mark // the oldest first
}

// mark is the lateness since the start, at the time of a sample.
type mark struct {
	at       time.Time
	lateness timingwheel.Histogram
}

// add adds a sample that was taken now. It returns what was late since the oldest mark,
// which is about a minute ago, or as long as there have been samples.
func (h *history) add(now time.Time, lateness timingwheel.Histogram) recent {
	for len(h.marks) > 0 && now.Sub(h.marks[0].at) > recentSpan+recentStep {
		h.marks = h.marks[1:]
	}
	var r recent
	if len(h.marks) > 0 {
		r = recent{now.Sub(h.marks[0].at), lateness.Sub(h.marks[0].lateness)}
	}
	if last := len(h.marks) - 1; last < 0 || now.Sub(h.marks[last].at) >= recentStep {
		h.marks = append(h.marks, mark{now, lateness})
	}
	return r
}
