package run

import (
	"regexp"
	"testing"
	"time"
)

func TestQuiet(t *testing.T) {
	b, ok := parseBusy("cpu  10 20 30 1000 200 1 2 3 7 8\ncpu0 1 1 1 1 1 1 1 1\n")
	if want := (busy{used: 66, all: 1266}); !ok || b != want {
		t.Errorf("%+v, %v, want %+v", b, ok, want)
	}
	for _, broken := range []string{"", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9", "cpu 1 2 3 4 5 6 7 x 9"} {
		if b, ok := parseBusy(broken); ok {
			t.Errorf("%q: %+v", broken, b)
		}
	}
	for used, want := range map[int64]string{
		2: "quiet: the processors were 2.0 % busy for 3s before it began",
		3: "busy: the processors were 3.0 % busy for 3s before it began",
	} {
		if s := verdict(busy{1, 1}, busy{used + 1, 101}, 3*time.Second); s != want {
			t.Errorf("%q, want %q", s, want)
		}
	}
	if s := Quiet(50 * time.Millisecond); !regexp.MustCompile("^(quiet|busy|unknown): ").MatchString(s) {
		t.Error(s)
	}
}
